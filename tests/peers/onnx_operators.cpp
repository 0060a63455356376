// SPDX-License-Identifier: Apache-2.0
// Prints, as one JSON object a line, what the catalogue makes of each operator's samples in ONNX:
// node type, attributes, constant operands, inputs and expected outputs. onnx_operators.py runs
// them in onnxruntime.
#include <cairn/ops.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdio>

#include "../ops/cases.h"

using namespace cairn;
using namespace cairn::conformance;

namespace {

std::string number(double v) {
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v > 0 ? "Infinity" : "-Infinity";
  return fmt::format("{}", v);
}

std::string json(const Tensor& t) {
  std::string values;
  if (t.dtype() == DType::i64)  // beyond what a double holds
    for (int64_t v : t.values<int64_t>()) values += (values.empty() ? "" : ",") + std::to_string(v);
  else
    for (double v : t.to_doubles()) values += (values.empty() ? "" : ",") + number(v);
  return fmt::format(R"({{"dtype":"{}","shape":[{}],"values":[{}]}})", name(t.dtype()),
                     fmt::join(t.shape().span(), ","), values);
}

std::string json(const OnnxValue& value) {
  if (auto* i = std::get_if<int64_t>(&value)) return fmt::format("{}", *i);
  if (auto* d = std::get_if<double>(&value)) return fmt::format("[\"float\",{}]", number(*d));
  if (auto* s = std::get_if<std::string>(&value)) return fmt::format("\"{}\"", *s);
  if (auto* list = std::get_if<std::vector<int64_t>>(&value))
    return fmt::format("[\"ints\",{}]", fmt::format("[{}]", fmt::join(*list, ",")));
  return fmt::format("[\"floats\",[{}]]", fmt::join(std::get<std::vector<double>>(value), ","));
}

}  // namespace

int main() {
  for (const OpDef* op : all_ops()) {
    if (!op->onnx.write) continue;
    for (const Case& c : cases(*op)) {
      OnnxCall call;
      try {
        call = op->onnx.write(c.params, c.types());
      } catch (const Error&) {
        continue;  // decomposed
      }
      std::string attributes, constants, inputs, outputs;
      for (const auto& a : call.attributes)
        attributes +=
            fmt::format("{}\"{}\":{}", attributes.empty() ? "" : ",", a.name, json(a.value));
      for (const auto& [position, tensor] : call.constants)
        constants +=
            fmt::format("{}\"{}\":{}", constants.empty() ? "" : ",", position, json(tensor));
      for (const Tensor& t : c.inputs) inputs += (inputs.empty() ? "" : ",") + json(t);
      for (const RefTensor& t : run_reference(*op, c.params, load(c.inputs)))
        outputs += (outputs.empty() ? "" : ",") + json(store(t));
      fmt::print(
          R"({{"name":"{}","type":"{}","attributes":{{{}}},"constants":{{{}}},"inputs":[{}],"outputs":[{}]}})"
          "\n",
          op->name, op->onnx.op_type, attributes, constants, inputs, outputs);
    }
  }
  return 0;
}
