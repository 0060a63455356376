// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse_conv.h"

#include <algorithm>

#include "ops/catalog.h"
#include "ops/fused/conv.h"

namespace cairn::passes {
namespace {

bool is_activation(const OpDef* op) {
  return op == &ops::relu_op || op == &ops::clamp_op || op == &ops::leaky_relu_op || op == &ops::hardswish_op ||
         op == &ops::silu_op || op == &ops::sigmoid_op || op == &ops::tanh_op || op == &ops::elu_op;
}

}  // namespace

PassReport fuse_conv(Graph& graph) {
  PassReport report;
  const auto made = producers(graph);
  const auto used = uses(graph);
  const auto results = result_uses(graph);
  for (size_t c = 0; c < graph.nodes.size(); ++c) {
    Node& conv = graph.nodes[c];
    if (conv.op != &ops::conv_op) continue;
    // The only reader of a value, when it makes one value of the same type.
    const auto only_reader = [&](ValueId v) -> int {
      if (used[size_t(v)].size() != 1 || results[size_t(v)] > 0) return -1;
      const Node& n = graph.nodes[size_t(used[size_t(v)][0])];
      return n.op && n.outputs.size() == 1 && graph.type(n.outputs[0]) == graph.type(v) ? used[size_t(v)][0] : -1;
    };
    ops::FusedConvParams params{conv.params.as<ops::ConvParams>()};
    params.bias = conv.inputs.size() > 2;
    std::vector<ValueId> inputs = conv.inputs;
    ValueId y = conv.outputs[0];
    std::vector<size_t> gone{c};
    if (const int s = only_reader(y); s >= 0 && graph.nodes[size_t(s)].op == &ops::add_op) {
      const Node& sum = graph.nodes[size_t(s)];
      const ValueId other = sum.inputs[0] == y ? sum.inputs[1] : sum.inputs[0];
      // A sum of two convolutions: the one that is made later takes the other as its residual.
      if (other != y && graph.type(other) == graph.type(y) && made[size_t(other)] < int(c)) {
        params.residual = true;
        inputs.push_back(other);
        y = sum.outputs[0];
        gone.push_back(size_t(s));
      }
    }
    if (const int a = only_reader(y); a >= 0 && is_activation(graph.nodes[size_t(a)].op)) {
      const Node& act = graph.nodes[size_t(a)];
      params.activation = act.op->name + act.params.to_string();
      y = act.outputs[0];
      gone.push_back(size_t(a));
    }
    if (gone.size() == 1) continue;
    Node fused{&ops::fused_conv_op, params, std::move(inputs), {y}, conv.site, conv.path};
    for (size_t i : gone) graph.nodes[i].op = nullptr;
    graph.nodes[gone.back()] = std::move(fused);
    ++report.changes;
  }
  compact(graph);
  sort_nodes(graph);
  return report;
}

}  // namespace cairn::passes
