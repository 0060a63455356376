// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse_elementwise.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "ops/catalog.h"
#include "ops/fused/program.h"

namespace cairn::passes {
namespace {

constexpr size_t kMostInputs = 16, kMostCalls = 32;

class Clusters {
 public:
  explicit Clusters(Graph& graph) : graph_(graph), made_(producers(graph)), of_(graph.nodes.size()) {
    std::iota(of_.begin(), of_.end(), 0);
    members_.resize(graph.nodes.size());
    for (size_t i = 0; i < members_.size(); ++i) members_[i] = {int(i)};
  }

  PassReport run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!fusible(graph_.nodes[i])) continue;
      for (ValueId v : graph_.nodes[i].inputs) {
        const int p = made_[size_t(v)];
        if (p >= 0 && fusible(graph_.nodes[size_t(p)])) try_join(of_[size_t(p)], of_[i]);
      }
    }
    PassReport report;
    const auto used = uses(graph_);
    const auto results = result_uses(graph_);
    for (size_t c = 0; c < members_.size(); ++c)
      if (members_[c].size() > 1) emit(members_[c], used, results), report.changes += int(members_[c].size()) - 1;
    compact(graph_);
    sort_nodes(graph_);
    return report;
  }

 private:
  static bool fusible(const Node& node) {
    return node.op->fusion.kind == FusionClass::elementwise && node.outputs.size() == 1 && !node.inputs.empty() &&
           node.op != &ops::fused_elementwise_op;
  }
  const Shape& shape(int cluster) const {
    return graph_.type(graph_.nodes[size_t(members_[size_t(cluster)][0])].outputs[0]).shape;
  }

  // Joining must not close a circle: no path may leave the producer cluster and come back to the consumer
  // through other nodes.
  void try_join(int from, int to) {
    if (from == to || shape(from) != shape(to)) return;
    const auto &a = members_[size_t(from)], &b = members_[size_t(to)];
    if (a.size() + b.size() > kMostCalls || inputs_of(from, to) > kMostInputs) return;
    if (depends_indirectly(to, from)) return;
    const int into = std::min(from, to), gone = std::max(from, to);
    for (int n : members_[size_t(gone)]) of_[size_t(n)] = into;
    auto& list = members_[size_t(into)];
    list.insert(list.end(), members_[size_t(gone)].begin(), members_[size_t(gone)].end());
    std::ranges::sort(list);
    members_[size_t(gone)].clear();
  }

  size_t inputs_of(int a, int b) const {
    std::vector<ValueId> seen;
    for (int c : {a, b})
      for (int n : members_[size_t(c)])
        for (ValueId v : graph_.nodes[size_t(n)].inputs) {
          const int p = made_[size_t(v)];
          if (p >= 0 && (of_[size_t(p)] == a || of_[size_t(p)] == b)) continue;
          if (std::ranges::find(seen, v) == seen.end()) seen.push_back(v);
        }
    return seen.size();
  }

  // Does `cluster` reach `target` through at least one other cluster?
  bool depends_indirectly(int cluster, int target) const {
    std::vector<char> visited(members_.size(), 0);
    std::vector<int> todo;
    const auto push_inputs = [&](int c, bool first) {
      for (int n : members_[size_t(c)])
        for (ValueId v : graph_.nodes[size_t(n)].inputs) {
          const int p = made_[size_t(v)];
          if (p < 0) continue;
          const int d = of_[size_t(p)];
          if (d == cluster || (first && d == target) || visited[size_t(d)]) continue;
          visited[size_t(d)] = 1;
          todo.push_back(d);
        }
    };
    push_inputs(cluster, true);
    // Only clusters that begin before the last member of the target can lead there … but a cluster may hold
    // later nodes too, so all are walked.
    while (!todo.empty()) {
      const int c = todo.back();
      todo.pop_back();
      if (c == target) return true;
      push_inputs(c, false);
    }
    return false;
  }

  void emit(const std::vector<int>& list, const std::vector<std::vector<int>>& used, const std::vector<int>& results) {
    ops::FusedProgram program;
    std::vector<ValueId> inputs, outputs;
    std::map<ValueId, int> where;  // value → argument code
    for (int n : list) {
      const Node& node = graph_.nodes[size_t(n)];
      ops::FusedCall call{node.op, node.params, {}, graph_.type(node.outputs[0])};
      for (ValueId v : node.inputs) {
        const auto [it, fresh] = where.emplace(v, -1 - int(inputs.size()));
        if (fresh) inputs.push_back(v);
        call.args.push_back(it->second);
      }
      where[node.outputs[0]] = int(program.calls.size());
      program.calls.push_back(std::move(call));
    }
    for (int n : list) {
      const ValueId v = graph_.nodes[size_t(n)].outputs[0];
      bool outside = results[size_t(v)] > 0;
      for (int u : used[size_t(v)]) outside = outside || of_[size_t(u)] != of_[size_t(n)];
      if (!outside) continue;
      program.results.push_back(where[v]);
      outputs.push_back(v);
    }
    Node& last = graph_.nodes[size_t(list.back())];
    Node fused{&ops::fused_elementwise_op, ops::FusedElementwiseParams{program.to_string()}, std::move(inputs),
               std::move(outputs), last.site, last.path};
    for (int n : list) graph_.nodes[size_t(n)].op = nullptr;
    last = std::move(fused);
  }

  Graph& graph_;
  std::vector<int> made_, of_;
  std::vector<std::vector<int>> members_;
};

}  // namespace

PassReport fuse_elementwise(Graph& graph) { return Clusters(graph).run(); }

}  // namespace cairn::passes
