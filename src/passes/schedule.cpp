// SPDX-License-Identifier: Apache-2.0
#include "passes/schedule.h"

#include "ops/catalog.h"

namespace cairn::passes {

PassReport schedule(Graph& graph) {
  const auto used = uses(graph);
  const size_t count = graph.nodes.size();
  std::vector<char> is_output(graph.values.size(), 0), is_variable(graph.values.size(), 0);
  for (ValueId v : graph.outputs) is_output[size_t(v)] = 1;
  for (const auto& v : graph.variables) is_variable[size_t(v.value)] = 1;
  // A node is an update when it is elementwise and everything it makes goes to assigns or other updates.
  // (Gradients lead to nothing but assigns either; they keep their places.)
  std::vector<char> update(count, 0);
  std::vector<char> assigned(graph.values.size(), 0);
  for (const auto& a : graph.assigns) assigned[size_t(a.value)] = 1;
  for (size_t i = count; i-- > 0;) {
    const OpDef& op = *graph.nodes[i].op;
    bool only = op.fusion.kind == FusionClass::elementwise || &op == &ops::fused_elementwise_op, any = false;
    for (ValueId v : graph.nodes[i].outputs) {
      only = only && !is_output[size_t(v)];
      any = any || assigned[size_t(v)] || !used[size_t(v)].empty();
      for (int u : used[size_t(v)]) only = only && update[size_t(u)];
    }
    update[i] = only && any;
  }
  // Readers, outside updates, that each variable still has.
  std::vector<int> readers(graph.values.size(), 0);
  for (size_t i = 0; i < count; ++i)
    if (!update[i])
      for (ValueId v : graph.nodes[i].inputs) readers[size_t(v)] += is_variable[size_t(v)];
  const auto made = producers(graph);
  std::vector<char> done(count, 0);
  std::vector<size_t> order, pending;
  for (size_t i = 0; i < count; ++i)
    if (update[i]) pending.push_back(i);
  const auto ready = [&](size_t i) {
    for (ValueId v : graph.nodes[i].inputs) {
      if (const int p = made[size_t(v)]; p >= 0 && !done[size_t(p)]) return false;
      if (is_variable[size_t(v)] && readers[size_t(v)] > 0) return false;
    }
    return true;
  };
  const auto place = [&](size_t i) { order.push_back(i), done[i] = 1; };
  const auto place_updates = [&] {
    std::erase_if(pending, [&](size_t i) { return ready(i) ? (place(i), true) : false; });
  };
  place_updates();
  for (size_t i = 0; i < count; ++i) {
    if (update[i]) continue;
    place(i);
    for (ValueId v : graph.nodes[i].inputs) readers[size_t(v)] -= is_variable[size_t(v)];
    place_updates();
  }
  CAIRN_CHECK(pending.empty(), "schedule: an update never became ready");
  PassReport report;
  std::vector<Node> nodes;
  for (size_t k = 0; k < order.size(); ++k) {
    report.changes += order[k] != k;
    nodes.push_back(std::move(graph.nodes[order[k]]));
  }
  graph.nodes = std::move(nodes);
  return report;
}

}  // namespace cairn::passes
