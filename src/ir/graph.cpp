// SPDX-License-Identifier: Apache-2.0
#include "ir/graph.h"

#include <fmt/format.h>

#include <queue>

namespace cairn {

ValueId Graph::add_value(TensorType type, std::string value_name) {
  constexpr int64_t kMostElements = int64_t(1) << 40;  // so that products of a few of them do not overflow
  int64_t count = 1;
  for (int64_t n : type.shape)
    if (__builtin_mul_overflow(count, std::max<int64_t>(n, 1), &count) || count > kMostElements)
      fail(ErrorCode::shape_mismatch, fmt::format("graph: {}{} is larger than any memory", to_string(type),
                                                  value_name.empty() ? "" : " '" + value_name + "'"));
  values.push_back({type, std::move(value_name)});
  return ValueId(values.size() - 1);
}

ValueId Graph::add_input(TensorType type, std::string input_name) {
  inputs.push_back(add_value(type, std::move(input_name)));
  return inputs.back();
}

ValueId Graph::add_constant(Tensor tensor) {
  const ValueId v = add_value(tensor.type());
  constants.push_back({v, std::move(tensor)});
  return v;
}

std::vector<ValueId> Graph::add_node(const OpDef& op, std::vector<ValueId> node_inputs, Params params, CallSite site,
                                     std::string path) {
  const TypeList in = types(node_inputs), out = op.infer(params, in);
  std::vector<ValueId> results;
  for (const auto& t : out) results.push_back(add_value(t));
  nodes.push_back({&op, std::move(params), std::move(node_inputs), results, site, std::move(path)});
  return results;
}

TypeList Graph::types(const std::vector<ValueId>& list) const {
  TypeList out;
  out.reserve(list.size());
  for (ValueId v : list) out.push_back(type(v));
  return out;
}

void verify(const Graph& graph) {
  const auto count = ValueId(graph.values.size());
  std::vector<char> made(graph.values.size(), 0);
  const auto define = [&](ValueId v, const std::string& what) {
    CAIRN_CHECK(v >= 0 && v < count, what + " defines a value out of range");
    CAIRN_CHECK(!made[size_t(v)], fmt::format("{} defines %{} again", what, v));
    made[size_t(v)] = 1;
  };
  const auto use = [&](ValueId v, const std::string& what) {
    CAIRN_CHECK(v >= 0 && v < count && made[size_t(v)], fmt::format("{} reads %{} before it is made", what, v));
  };
  for (ValueId v : graph.inputs) define(v, "an input");
  for (const auto& v : graph.variables) define(v.value, "a variable");
  for (const auto& c : graph.constants) {
    define(c.value, "a constant");
    CAIRN_CHECK(c.tensor.type() == graph.type(c.value), "a constant has another type than its value");
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    CAIRN_CHECK(node.op, "a deleted node was not compacted");
    const std::string what = fmt::format("node {} ({})", i, node.op->name);
    for (ValueId v : node.inputs) use(v, what);
    const TypeList inferred = node.op->infer(node.params, graph.types(node.inputs));
    CAIRN_CHECK(inferred == graph.types(node.outputs), what + " has other types than inference gives");
    for (ValueId v : node.outputs) define(v, what);
  }
  for (ValueId v : graph.outputs) use(v, "an output");
  for (const auto& a : graph.assigns) {
    use(a.value, "an assign");
    CAIRN_CHECK(a.variable >= 0 && size_t(a.variable) < graph.variables.size(), "an assign to no variable");
    CAIRN_CHECK(graph.type(a.value) == graph.type(graph.variables[size_t(a.variable)].value),
                "an assign changes the type of " + graph.values[size_t(graph.variables[size_t(a.variable)].value)].name);
  }
}

std::vector<int> producers(const Graph& graph) {
  std::vector<int> made(graph.values.size(), -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (ValueId v : graph.nodes[i].outputs) made[size_t(v)] = int(i);
  return made;
}

std::vector<std::vector<int>> uses(const Graph& graph) {
  std::vector<std::vector<int>> out(graph.values.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (graph.nodes[i].op)
      for (ValueId v : graph.nodes[i].inputs) out[size_t(v)].push_back(int(i));
  return out;
}

std::vector<int> result_uses(const Graph& graph) {
  std::vector<int> out(graph.values.size(), 0);
  for (ValueId v : graph.outputs) ++out[size_t(v)];
  for (const auto& a : graph.assigns) ++out[size_t(a.value)];
  return out;
}

void replace_values(Graph& graph, std::vector<ValueId> to) {
  const auto root = [&](ValueId v) {
    while (to[size_t(v)] != v) v = to[size_t(v)] = to[size_t(to[size_t(v)])];
    return v;
  };
  for (Node& node : graph.nodes)
    for (ValueId& v : node.inputs) v = root(v);
  for (ValueId& v : graph.outputs) v = root(v);
  for (auto& a : graph.assigns) a.value = root(a.value);
}

void compact(Graph& graph) {
  std::erase_if(graph.nodes, [](const Node& n) { return !n.op; });
  const auto used = uses(graph);
  const auto results = result_uses(graph);
  const auto dead = [&](ValueId v) { return used[size_t(v)].empty() && results[size_t(v)] == 0; };
  std::erase_if(graph.constants, [&](const auto& c) { return dead(c.value); });
  std::vector<char> assigned(graph.variables.size(), 0);
  for (const auto& a : graph.assigns) assigned[size_t(a.variable)] = 1;
  std::vector<int> moved(graph.variables.size(), -1);
  std::vector<Graph::VariableInput> kept;
  for (size_t i = 0; i < graph.variables.size(); ++i)
    if (assigned[i] || !dead(graph.variables[i].value)) {
      moved[i] = int(kept.size());
      kept.push_back(graph.variables[i]);
    }
  graph.variables = std::move(kept);
  for (auto& a : graph.assigns) a.variable = moved[size_t(a.variable)];
}

void freeze_variables(Graph& graph) {
  CAIRN_CHECK(graph.assigns.empty(), "a graph that assigns variables cannot be frozen");
  for (const auto& v : graph.variables) graph.constants.push_back({v.value, v.variable.value().dense()});
  graph.variables.clear();
}

void sort_nodes(Graph& graph) {
  const auto made = producers(graph);
  const auto used = uses(graph);
  const size_t count = graph.nodes.size();
  std::vector<int> waits(count, 0);
  for (size_t i = 0; i < count; ++i)
    for (ValueId v : graph.nodes[i].inputs) waits[i] += made[size_t(v)] >= 0;
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;  // the earliest first
  for (size_t i = 0; i < count; ++i)
    if (waits[i] == 0) ready.push(i);
  std::vector<Node> nodes;
  while (!ready.empty()) {
    const size_t i = ready.top();
    ready.pop();
    for (ValueId v : graph.nodes[i].outputs)
      for (int u : used[size_t(v)])
        if (--waits[size_t(u)] == 0) ready.push(size_t(u));
    nodes.push_back(std::move(graph.nodes[i]));
  }
  CAIRN_CHECK(nodes.size() == count, "the graph has a circle");
  graph.nodes = std::move(nodes);
}

}  // namespace cairn
