// SPDX-License-Identifier: Apache-2.0
#include "passes/fold_constants.h"

#include <unordered_map>

#include "ops/interpreter.h"

namespace cairn::passes {

constexpr int64_t kLargestFold = 4096;

PassReport fold_constants(Graph& graph) {
  PassReport report;
  std::unordered_map<ValueId, Tensor> known;
  for (const auto& c : graph.constants) known[c.value] = c.tensor;
  InterpreterScope eager(eager_interpreter());
  for (Node& node : graph.nodes) {
    std::vector<Tensor> in;
    int64_t in_elements = 0, out_elements = 0;
    for (ValueId v : node.inputs) {
      const auto it = known.find(v);
      if (it == known.end()) break;
      in.push_back(it->second);
      in_elements += it->second.numel();
    }
    if (in.size() != node.inputs.size()) continue;
    for (ValueId v : node.outputs) out_elements += graph.type(v).numel();
    if (out_elements > kLargestFold && out_elements > in_elements) continue;
    const auto out = apply(*node.op, in, node.params, node.site);
    for (size_t i = 0; i < out.size(); ++i) {
      graph.constants.push_back({node.outputs[i], out[i].dense()});
      known[node.outputs[i]] = out[i];
    }
    node.op = nullptr;
    ++report.changes;
  }
  compact(graph);
  return report;
}

}  // namespace cairn::passes
