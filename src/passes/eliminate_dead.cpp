// SPDX-License-Identifier: Apache-2.0
#include "passes/eliminate_dead.h"

namespace cairn::passes {

PassReport eliminate_dead(Graph& graph) {
  PassReport report;
  std::vector<char> needed(graph.values.size(), 0);
  for (ValueId v : graph.outputs) needed[size_t(v)] = 1;
  for (const auto& a : graph.assigns) needed[size_t(a.value)] = 1;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    bool live = false;
    for (ValueId v : node->outputs) live = live || needed[size_t(v)];
    if (live) {
      for (ValueId v : node->inputs) needed[size_t(v)] = 1;
    } else {
      node->op = nullptr;
      ++report.changes;
    }
  }
  compact(graph);
  return report;
}

}  // namespace cairn::passes
