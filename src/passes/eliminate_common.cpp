// SPDX-License-Identifier: Apache-2.0
#include "passes/eliminate_common.h"

#include <numeric>
#include <unordered_map>

#include "base/random.h"

namespace cairn::passes {

PassReport eliminate_common(Graph& graph) {
  PassReport report;
  std::vector<ValueId> to(graph.values.size());
  std::iota(to.begin(), to.end(), ValueId(0));
  std::unordered_multimap<uint64_t, size_t> seen;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    uint64_t key = mix(uint64_t(reinterpret_cast<uintptr_t>(node.op)), node.params.hash());
    for (ValueId& v : node.inputs) key = mix(key, uint64_t(v = to[size_t(v)]));
    const auto [begin, end] = seen.equal_range(key);
    bool found = false;
    for (auto it = begin; it != end && !found; ++it) {
      const Node& other = graph.nodes[it->second];
      found = other.op == node.op && other.inputs == node.inputs && other.params == node.params;
      if (found)
        for (size_t k = 0; k < node.outputs.size(); ++k) to[size_t(node.outputs[k])] = other.outputs[k];
    }
    if (found) node.op = nullptr, ++report.changes;
    else seen.emplace(key, i);
  }
  replace_values(graph, to);
  compact(graph);
  return report;
}

}  // namespace cairn::passes
