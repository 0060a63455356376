// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse_norm_act.h"

#include <numeric>

#include "ops/catalog.h"
#include "ops/fused/norm_act.h"

namespace cairn::passes {
namespace {

double epsilon_of(const Node& node) {
  for (const auto& [name, value] : node.params.values())
    if (name == "epsilon") return std::get<double>(value);
  return 1e-5;
}

}  // namespace

PassReport fuse_norm_act(Graph& graph) {
  PassReport report;
  const auto made = producers(graph);
  const auto used = uses(graph);
  const auto results = result_uses(graph);
  const auto maker = [&](ValueId v) { return made[size_t(v)] < 0 ? nullptr : &graph.nodes[size_t(made[size_t(v)])]; };
  const auto single = [&](ValueId v) { return used[size_t(v)].size() == 1 && results[size_t(v)] == 0; };

  // The gradients through a silu over a norm, as (silu_grad, batch_norm_grad); nothing where the norm's result, which
  // they are to make again, has other readers.
  using Gradients = std::vector<std::pair<Node*, Node*>>;
  const auto gradients_of = [&](const Node& norm, const Node& silu) -> std::optional<Gradients> {
    const ValueId z = norm.outputs[0];
    if (results[size_t(z)] > 0) return {};
    Gradients out;
    for (int user : used[size_t(z)]) {
      Node& slope = graph.nodes[size_t(user)];
      if (&slope == &silu) continue;
      if (slope.op != &ops::silu_grad_op || slope.inputs[0] == z || !single(slope.outputs[0])) return {};
      Node& grad = graph.nodes[size_t(used[size_t(slope.outputs[0])][0])];
      if (grad.op != &ops::batch_norm_grad_op || grad.inputs[0] != slope.outputs[0] || grad.inputs[1] != norm.inputs[0]) return {};
      out.emplace_back(&slope, &grad);
    }
    return out;
  };

  for (Node& node : graph.nodes) {
    if (node.op == &ops::silu_op) {
      Node* norm = maker(node.inputs[0]);
      if (!norm || norm->op != &ops::batch_norm_train_op || node.inputs[0] != norm->outputs[0]) continue;
      const auto gradients = gradients_of(*norm, node);
      if (!gradients) continue;
      const ops::NormActParams params{epsilon_of(*norm), "silu", false};
      for (const auto& [slope, grad] : *gradients) {
        const ValueId x = grad->inputs[1];
        grad->inputs = {slope->inputs[0], x, x, grad->inputs[2], grad->inputs[3], grad->inputs[4], norm->inputs[2]};
        grad->op = &ops::batch_norm_act_grad_op;
        grad->params = params;
        slope->op = nullptr;
      }
      node = Node{&ops::batch_norm_act_train_op, params, norm->inputs,
                  {node.outputs[0], norm->outputs[1], norm->outputs[2]}, norm->site, norm->path};
      norm->op = nullptr;
      ++report.changes;
    } else if (node.op == &ops::relu_op) {
      // y = relu(norm) or relu(norm + residual). The joined call stands where the relu stood, since the
      // residual may be made between the norm and the relu.
      ValueId x = node.inputs[0], residual = -1;
      if (Node* sum = maker(x); sum && sum->op == &ops::add_op && single(x) &&
                                graph.type(sum->inputs[0]) == graph.type(sum->inputs[1])) {
        for (int side = 0; side < 2 && residual < 0; ++side) {
          const ValueId candidate = sum->inputs[size_t(side)];
          Node* norm = maker(candidate);
          if (norm && norm->op == &ops::batch_norm_train_op && candidate == norm->outputs[0] && single(candidate)) {
            residual = sum->inputs[size_t(1 - side)];
            x = candidate;
          }
        }
        if (residual >= 0) sum->op = nullptr;
      }
      Node* norm = maker(x);
      if (!norm || norm->op != &ops::batch_norm_train_op || x != norm->outputs[0] || !single(x)) continue;
      // The statistics may be read before the relu (running averages do); those calls move behind by the sort.
      std::vector<ValueId> inputs = norm->inputs;
      if (residual >= 0) inputs.push_back(residual);
      const ops::NormActParams params{epsilon_of(*norm), "relu", residual >= 0};
      node = Node{&ops::batch_norm_act_train_op, params, std::move(inputs),
                  {node.outputs[0], norm->outputs[1], norm->outputs[2]}, norm->site, norm->path};
      norm->op = nullptr;
      ++report.changes;
    } else if (node.op == &ops::batch_norm_grad_op) {
      const ValueId d = node.inputs[0];
      Node* mask = maker(d);
      if (!mask || mask->op != &ops::relu_grad_op) continue;
      const bool elsewhere = used[size_t(d)].size() > 1 || results[size_t(d)] > 0;
      // Where two norms share the mask (a projection shortcut), the first takes it over and hands it on.
      std::vector<ValueId> inputs{mask->inputs[0], mask->inputs[1]}, outputs = node.outputs;
      inputs.insert(inputs.end(), node.inputs.begin() + 1, node.inputs.end());
      if (elsewhere) outputs.push_back(d);
      node.params = ops::NormActParams{epsilon_of(node), "relu", elsewhere};
      node.op = &ops::batch_norm_act_grad_op;
      node.inputs = std::move(inputs);
      node.outputs = std::move(outputs);
      mask->op = nullptr;
      ++report.changes;
    }
  }
  compact(graph);
  sort_nodes(graph);
  return report;
}

}  // namespace cairn::passes
