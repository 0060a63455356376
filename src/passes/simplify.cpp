// SPDX-License-Identifier: Apache-2.0
#include "passes/simplify.h"

#include <numeric>
#include <optional>

#include "ops/catalog.h"

namespace cairn::passes {
namespace {

class Simplifier {
 public:
  explicit Simplifier(Graph& graph) : graph_(graph), made_(producers(graph)), to_(graph.values.size()) {
    std::iota(to_.begin(), to_.end(), ValueId(0));
    constant_.resize(graph.values.size());
    for (const auto& c : graph.constants) constant_[size_t(c.value)] = &c.tensor;
  }

  PassReport run() {
    PassReport report;
    for (Node& node : graph_.nodes) {
      for (ValueId& v : node.inputs) v = to_[size_t(v)];
      shorten(node);
      if (const auto same = equal_to(node)) {
        to_[size_t(node.outputs[0])] = *same;
        node.op = nullptr;
        ++report.changes;
      }
    }
    replace_values(graph_, to_);
    compact(graph_);
    return report;
  }

 private:
  // The number that every element of v is, if that is known.
  std::optional<double> uniform(ValueId v) const {
    if (const Tensor* t = constant_[size_t(v)]) {
      if (t->numel() == 0 || t->numel() > 4096) return std::nullopt;
      const auto values = t->to_doubles();
      for (double x : values)
        if (!(x == values[0])) return std::nullopt;
      return values[0];
    }
    if (const Node* n = maker(v); n && n->op == &ops::full_op)
      for (const auto& [name, value] : n->params.values())
        if (name == "value") return std::get<double>(value);
    if (const Node* n = maker(v); n && n->op == &ops::broadcast_to_op) return uniform(n->inputs[0]);
    return std::nullopt;
  }
  const Node* maker(ValueId v) const {
    const int n = made_[size_t(v)];
    return n < 0 || !graph_.nodes[size_t(n)].op ? nullptr : &graph_.nodes[size_t(n)];
  }
  static std::vector<int64_t> list_param(const Node& node, std::string_view name) {
    for (const auto& [n, value] : node.params.values())
      if (n == name) return std::get<std::vector<int64_t>>(value);
    return {};
  }

  // The value that the node's only output equals, if it is there already.
  std::optional<ValueId> equal_to(const Node& node) const {
    if (node.outputs.size() != 1 || node.inputs.empty()) return std::nullopt;
    const OpDef* op = node.op;
    const ValueId a = node.inputs[0];
    const TensorType& out = graph_.type(node.outputs[0]);
    const auto keeps = [&](ValueId v) { return graph_.type(v) == out; };
    if (op == &ops::identity_op || op == &ops::stop_gradient_op) return a;
    if ((op == &ops::reshape_op || op == &ops::broadcast_to_op || op == &ops::cast_op) && keeps(a)) return a;
    if (op == &ops::transpose_op) {
      const auto order = list_param(node, "order");
      for (size_t i = 0; i < order.size(); ++i)
        if (order[i] != int64_t(i)) return std::nullopt;
      return a;
    }
    if (op == &ops::neg_op)
      if (const Node* inner = maker(a); inner && inner->op == &ops::neg_op) return inner->inputs[0];
    if (op == &ops::relu_op)
      if (const Node* inner = maker(a); inner && inner->op == &ops::relu_op) return a;
    if (node.inputs.size() == 2) {
      const ValueId b = node.inputs[1];
      const auto is = [&](ValueId v, double x) { return uniform(v) == x; };
      if (op == &ops::mul_op) {
        if (keeps(a) && is(b, 1)) return a;
        if (keeps(b) && is(a, 1)) return b;
      }
      if (op == &ops::add_op) {
        if (keeps(a) && is(b, 0)) return a;
        if (keeps(b) && is(a, 0)) return b;
      }
      if (op == &ops::sub_op && keeps(a) && is(b, 0)) return a;
      if (op == &ops::div_op && keeps(a) && is(b, 1)) return a;
    }
    return std::nullopt;
  }

  // Skips over a call whose effect this one undoes or repeats.
  void shorten(Node& node) const {
    if (node.inputs.size() != 1) return;
    const Node* inner = maker(node.inputs[0]);
    if (!inner || inner->op != node.op) return;
    if (node.op == &ops::reshape_op) {
      node.inputs[0] = inner->inputs[0];
    } else if (node.op == &ops::transpose_op) {
      const auto first = list_param(*inner, "order"), second = list_param(node, "order");
      std::vector<int64_t> both;
      for (int64_t axis : second) both.push_back(first[size_t(axis)]);
      node.params = node.op->make_params({{"order", both}});
      node.inputs[0] = inner->inputs[0];
    }
  }

  Graph& graph_;
  std::vector<int> made_;
  std::vector<ValueId> to_;
  std::vector<const Tensor*> constant_;
};

}  // namespace

PassReport simplify(Graph& graph) { return Simplifier(graph).run(); }

}  // namespace cairn::passes
