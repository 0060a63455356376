// SPDX-License-Identifier: Apache-2.0
#include "passes/fold_norm.h"

#include <unordered_map>

#include "ops/catalog.h"
#include "ops/interpreter.h"

namespace cairn::passes {

PassReport fold_norm(Graph& graph) {
  PassReport report;
  std::unordered_map<ValueId, Tensor> known;
  for (const auto& c : graph.constants) known[c.value] = c.tensor;
  const auto made = producers(graph);
  const auto used = uses(graph);
  const auto results = result_uses(graph);
  InterpreterScope eager(eager_interpreter());
  for (Node& norm : graph.nodes) {
    if (norm.op != &ops::batch_norm_infer_op) continue;
    const ValueId x = norm.inputs[0];
    if (made[size_t(x)] < 0 || used[size_t(x)].size() != 1 || results[size_t(x)] > 0) continue;
    Node& conv = graph.nodes[size_t(made[size_t(x)])];
    if (conv.op != &ops::conv_op) continue;
    bool constant = true;
    for (size_t i = 1; i < norm.inputs.size(); ++i) constant = constant && known.contains(norm.inputs[i]);
    for (size_t i = 1; i < conv.inputs.size(); ++i) constant = constant && known.contains(conv.inputs[i]);
    if (!constant) continue;
    double epsilon = 1e-5;
    for (const auto& [name, value] : norm.params.values())
      if (name == "epsilon") epsilon = std::get<double>(value);
    const auto f64 = [&](ValueId v) { return cast(known.at(v), DType::f64); };
    const DType dtype = graph.type(x).dtype;
    const Tensor scale = f64(norm.inputs[1]) * rsqrt(f64(norm.inputs[4]) + epsilon);
    Tensor shift = f64(norm.inputs[2]) - f64(norm.inputs[3]) * scale;
    if (conv.inputs.size() > 2) shift = shift + f64(conv.inputs[2]) * scale;
    const Tensor weight = f64(conv.inputs[1]) * reshape(scale, {scale.numel(), 1, 1, 1});
    const ValueId w = graph.add_constant(cast(weight, dtype).dense());
    const ValueId b = graph.add_constant(cast(shift, dtype).dense());
    norm = Node{conv.op, conv.params, {conv.inputs[0], w, b}, norm.outputs, conv.site, conv.path};
    conv.op = nullptr;
    ++report.changes;
  }
  compact(graph);
  return report;
}

}  // namespace cairn::passes
