// SPDX-License-Identifier: Apache-2.0
// What the catalogue says of ONNX, held against the specification itself: the schemas of opset 17
// in libonnx.
#include <cairn/ops.h>
#include <gtest/gtest.h>
#include <onnx/defs/schema.h>

#include "cases.h"

namespace cairn::conformance {
namespace {

constexpr int kOpset = 17;

class OnnxSchema : public testing::TestWithParam<const OpDef*> {};

onnx::AttributeProto::AttributeType kind(const OnnxValue& value) {
  constexpr onnx::AttributeProto::AttributeType kinds[]{
      onnx::AttributeProto::INT, onnx::AttributeProto::FLOAT, onnx::AttributeProto::STRING,
      onnx::AttributeProto::INTS, onnx::AttributeProto::FLOATS};
  return kinds[value.index()];
}

TEST_P(OnnxSchema, mapping_follows_the_specification) {
  const OpDef& op = *GetParam();
  const auto* schema = onnx::OpSchemaRegistry::Schema(op.onnx.op_type, kOpset, onnx::ONNX_DOMAIN);
  ASSERT_TRUE(schema) << "no " << op.onnx.op_type << " in opset " << kOpset;
  EXPECT_EQ(schema->since_version(), op.onnx.since) << op.onnx.op_type;
  for (const Case& c : cases(op)) {
    OnnxCall call;
    try {
      call = op.onnx.write(c.params, c.types());
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ErrorCode::unsupported) << e.what();
      continue;
    }
    for (const OnnxAttribute& a : call.attributes) {
      const auto it = schema->attributes().find(a.name);
      ASSERT_NE(it, schema->attributes().end())
          << op.onnx.op_type << " has no attribute " << a.name;
      EXPECT_EQ(it->second.type, kind(a.value)) << op.onnx.op_type << "." << a.name;
    }
    for (const auto& [name, attribute] : schema->attributes())
      EXPECT_TRUE(!attribute.required || call.find(name))
          << op.onnx.op_type << " needs the attribute " << name;
    int inputs = int(c.inputs.size());
    for (const auto& [position, tensor] : call.constants) inputs = std::max(inputs, position + 1);
    EXPECT_GE(inputs, schema->min_input()) << c.describe();
    EXPECT_LE(inputs, schema->max_input()) << c.describe();
    const auto result = c.result_types();
    EXPECT_GE(int(result.size()), schema->min_output()) << c.describe();

    // Dtypes of operands, against the type constraints ("T" → tensor(float), …); constants too.
    const auto check = [&](int position, DType dtype) {
      const auto& formal =
          schema->inputs()[std::min(size_t(position), schema->inputs().size() - 1)];
      constexpr const char* names[]{"double", "float", "float16", "bfloat16", "int64",
                                    "int32",  "int16", "int8",    "uint8",    "bool"};
      const std::string type = fmt::format("tensor({})", names[size_t(dtype)]);
      bool allowed = false;
      for (const auto* t : formal.GetTypes()) allowed = allowed || *t == type;
      EXPECT_TRUE(allowed) << op.onnx.op_type << " does not take " << type << " as "
                           << formal.GetName();
    };
    for (size_t i = 0; i < c.inputs.size(); ++i) check(int(i), c.inputs[i].dtype());
    for (const auto& [position, tensor] : call.constants) check(position, tensor.dtype());
  }
}

std::vector<const OpDef*> mapped() {
  std::vector<const OpDef*> list;
  for (const OpDef* op : all_ops())
    if (op->onnx.write) list.push_back(op);
  return list;
}

INSTANTIATE_TEST_SUITE_P(Operators, OnnxSchema, testing::ValuesIn(mapped()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace cairn::conformance
