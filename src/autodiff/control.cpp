// SPDX-License-Identifier: Apache-2.0
#include "autodiff/control.h"

#include <cairn/autodiff.h>
#include <fmt/format.h>

#include <algorithm>

#include "ir/trace.h"
#include "ops/catalog.h"
#include "ops/reference.h"

namespace cairn {
namespace {

// The references of a graph's calls, one after the other.
std::vector<RefTensor> run_reference(const Graph& graph, std::span<const RefTensor> inputs) {
  std::vector<RefTensor> values(graph.values.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i) values[size_t(graph.inputs[i])] = inputs[i];
  for (const auto& c : graph.constants)
    values[size_t(c.value)] = load_reference(c.tensor.type(), c.tensor.dense().bytes());
  for (const Node& node : graph.nodes) {
    std::vector<RefTensor> in, out;
    for (ValueId v : node.inputs) in.push_back(values[size_t(v)]);
    for (ValueId v : node.outputs) out.push_back(empty_reference(graph.type(v)));
    node.op->reference(node.params, in, out);
    for (size_t i = 0; i < out.size(); ++i) {
      // Through memory, so that f32 rounds where it would.
      std::vector<std::byte> bytes(size_t(out[i].type.bytes()));
      store_reference(out[i], bytes.data());
      values[size_t(node.outputs[i])] = load_reference(out[i].type, bytes.data());
    }
  }
  std::vector<RefTensor> results;
  for (ValueId v : graph.outputs) results.push_back(values[size_t(v)]);
  return results;
}

TypeList output_types(const Graph& graph) { return graph.types(graph.outputs); }
TypeList input_types(const Graph& graph) { return graph.types(graph.inputs); }

// A branch recorded, with the outside values that it reads.
struct Branch {
  std::shared_ptr<Graph> graph;
  std::vector<Tensor> captured;
};

Branch record(const char* name, const std::vector<TensorType>& inputs, const Function& function) {
  Tracer tracer(name, &current_interpreter());
  std::vector<Tensor> in;
  for (size_t i = 0; i < inputs.size(); ++i) in.push_back(tracer.add_input(inputs[i], fmt::format("s{}", i)));
  InterpreterScope scope(tracer);
  auto graph = tracer.finish(function(in));
  return {graph, tracer.captured()};
}

// Gives two branches one list of captured inputs (after the first `own` inputs).
std::vector<Tensor> unite(Branch& a, Branch& b, size_t own) {
  std::vector<Tensor> all = a.captured;
  for (const Tensor& t : b.captured)
    if (std::ranges::none_of(all, [&](const Tensor& o) { return o.id() == t.id(); })) all.push_back(t);
  for (Branch* branch : {&a, &b}) {
    std::vector<ValueId> inputs(branch->graph->inputs.begin(), branch->graph->inputs.begin() + long(own));
    const auto captured = branch->captured;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto it = std::ranges::find_if(captured, [&](const Tensor& t) { return t.id() == all[i].id(); });
      ValueId v;
      if (it != captured.end()) {
        v = branch->graph->inputs[own + size_t(it - captured.begin())];
      } else {
        v = branch->graph->add_value(all[i].type());
      }
      branch->graph->values[size_t(v)].name = fmt::format("c{}", i);
      inputs.push_back(v);
    }
    branch->graph->inputs = std::move(inputs);
  }
  return all;
}

void check_condition(const Tensor& condition) {
  if (condition.dtype() != DType::boolean || condition.numel() != 1)
    fail(ErrorCode::dtype_unsupported,
         "condition: got " + to_string(condition.type()) + ", expected one bool element");
}

// Σ over outputs of dy · output, differentiated: the gradients of the captured inputs of one branch.
std::vector<Tensor> branch_gradient(const Graph& graph, const std::vector<Tensor>& captured,
                                    const std::vector<Tensor>& dy, const std::vector<int>& wanted) {
  Tape tape;
  std::vector<Tensor> fresh;  // ids of their own, so that the tape sees this branch alone
  for (const Tensor& t : captured) {
    fresh.push_back(identity(t));
    tape.watch(fresh.back());
  }
  const auto results = interpret(graph, fresh);
  Tensor total;
  for (size_t k = 0; k < results.size(); ++k) {
    if (!dy[k].defined()) continue;
    const Tensor part = sum(results[k] * dy[k]);
    total = total.defined() ? total + part : part;
  }
  std::vector<Tensor> sources;
  for (int i : wanted) sources.push_back(fresh[size_t(i)]);
  return tape.gradient(total, sources);
}

}  // namespace

namespace ops {

extern const OpDef cond_op = define(OpSpec<CondParams>{
    .name = "cond",
    .inputs = {{"condition", boolean_only}, {.name = "captured", .variadic = true, .optional = true}},
    .outputs = {{.name = "results", .variadic = true}},
    .infer =
        [](auto& p, Types in) {
          if (!p.then_graph || !p.else_graph) fail(ErrorCode::invalid_argument, "a branch is missing");
          if (in[0].numel() != 1)
            fail(ErrorCode::shape_mismatch, "condition: got " + to_string(in[0]) + ", expected one bool element");
          const TypeList captured(in.begin() + 1, in.end());
          for (const GraphPtr& g : {p.then_graph, p.else_graph})
            if (input_types(*g) != captured)
              fail(ErrorCode::shape_mismatch, "a branch does not take the captured values");
          const TypeList a = output_types(*p.then_graph), b = output_types(*p.else_graph);
          if (a != b) {
            const auto text = [](const TypeList& list) {
              std::string s;
              for (const auto& t : list) s += (s.empty() ? "" : ", ") + to_string(t);
              return "(" + s + ")";
            };
            fail(ErrorCode::shape_mismatch,
                 "the branches give different types: then " + text(a) + ", else " + text(b));
          }
          return a;
        },
    .factors = no_factors("which branch runs decides what may be split"),
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          auto results = run_reference(in[0].i[0] ? *p.then_graph : *p.else_graph, in.subspan(1));
          for (size_t i = 0; i < results.size(); ++i) out[i] = std::move(results[i]);
        },
    .saves = {every_input()},
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          std::vector<Tensor> captured, given(dy.begin(), dy.end());
          std::vector<int> wanted;
          for (int i = 1; i < s.input_count(); ++i) {
            captured.push_back(s.input(i));
            if (s.needs(i)) wanted.push_back(i - 1);
          }
          const auto branch = [&](const GraphPtr& g) {
            return [&, g] { return branch_gradient(*g, captured, given, wanted); };
          };
          const auto found = cond(s.input(0), branch(p.then_graph), branch(p.else_graph));
          Grads all(size_t(s.input_count()));
          for (size_t k = 0; k < wanted.size(); ++k) all[size_t(wanted[k]) + 1] = found[k];
          return all;
        },
    .cost =
        [](auto& p, Types in, Types out) {
          Cost most;  // the dearer branch
          for (const GraphPtr& g : {p.then_graph, p.else_graph}) {
            Cost c;
            for (const Node& n : g->nodes) {
              const Cost one = n.op->cost(n.params, g->types(n.inputs), g->types(n.outputs));
              c.flops += one.flops, c.bytes += one.bytes;
            }
            if (c.flops >= most.flops) most = c;
          }
          for (Types list : {in, out})
            for (const auto& t : list) most.bytes += double(t.bytes());
          return most;
        },
    .fusion = opaque("it holds graphs of its own"),
    .onnx = no_onnx("written as If by the exporter, which owns sub-graphs"),
    .samples = none("its parameters are graphs; tested in autodiff/control_test.cpp"),
});

extern const OpDef while_loop_op = define(OpSpec<WhileParams>{
    .name = "while_loop",
    .inputs = {{.name = "state and captured", .variadic = true}},
    .outputs = {{.name = "state", .variadic = true}},
    .infer =
        [](auto& p, Types in) {
          if (!p.condition || !p.body) fail(ErrorCode::invalid_argument, "a loop needs a condition and a body");
          const TypeList state(in.begin(), in.begin() + p.state);
          const TypeList c = output_types(*p.condition);
          if (c.size() != 1 || c[0].dtype != DType::boolean || c[0].numel() != 1)
            fail(ErrorCode::dtype_unsupported, "the condition must give one bool element");
          if (output_types(*p.body) != state)
            fail(ErrorCode::shape_mismatch, "the body must give values of the same types as the state");
          return state;
        },
    .factors = no_factors("how often the body runs depends on all of the state"),
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          std::vector<RefTensor> values(in.begin(), in.end());
          while (run_reference(*p.condition, values)[0].i[0]) {
            auto next = run_reference(*p.body, values);
            for (size_t i = 0; i < next.size(); ++i) values[i] = std::move(next[i]);
          }
          for (size_t i = 0; i < out.size(); ++i) out[i] = std::move(values[i]);
        },
    .saves = none("forward only"),
    .gradient = no_gradient("a loop runs an unknown number of times; unroll it, or use cond"),
    .cost = [](auto&, Types in, Types out) { return Cost{1, [&] {
               double bytes = 0;
               for (Types list : {in, out})
                 for (const auto& t : list) bytes += double(t.bytes());
               return bytes;
             }()}; },
    .fusion = opaque("it holds graphs of its own"),
    .onnx = no_onnx("written as Loop by the exporter, which owns sub-graphs"),
    .samples = none("its parameters are graphs; tested in autodiff/control_test.cpp"),
});

}  // namespace ops

std::vector<Tensor> cond(const Arg& condition, const std::function<std::vector<Tensor>()>& then_branch,
                         const std::function<std::vector<Tensor>()>& else_branch) {
  const Tensor choice = condition.tensor(DType::boolean);
  check_condition(choice);
  if (!choice.is_symbolic()) return choice.item() != 0 ? then_branch() : else_branch();
  Branch a = record("then", {}, [&](auto&) { return then_branch(); });
  Branch b = record("else", {}, [&](auto&) { return else_branch(); });
  std::vector<Tensor> inputs{choice};
  for (const Tensor& t : unite(a, b, 0)) inputs.push_back(t);
  return apply(ops::cond_op, inputs, ops::CondParams{a.graph, b.graph}, condition.site());
}

std::vector<Tensor> while_loop(const std::function<Tensor(const std::vector<Tensor>&)>& condition,
                               const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body,
                               std::vector<Tensor> state) {
  if (!current_interpreter().tracer()) {
    for (;;) {
      const Tensor go_on = condition(state);
      check_condition(go_on);
      if (go_on.item() == 0) return state;
      state = body(state);
    }
  }
  TypeList types;
  for (const Tensor& t : state) types.push_back(t.type());
  Branch a = record("condition", types, [&](auto& s) { return std::vector{condition(s)}; });
  Branch b = record("body", types, body);
  const size_t own = state.size();
  for (const Tensor& t : unite(a, b, own)) state.push_back(t);
  return apply(ops::while_loop_op, state, ops::WhileParams{a.graph, b.graph, int64_t(own)});
}

}  // namespace cairn
