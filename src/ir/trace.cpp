// SPDX-License-Identifier: Apache-2.0
#include "ir/trace.h"

#include <fmt/format.h>

#include "ops/context.h"

namespace cairn {

struct Tracer::Traced : Symbol {
  Traced(const Tracer* o, ValueId v, std::string t) : owner(o), value(v), text(std::move(t)) {}
  std::string describe() const override { return text; }
  const Tracer* owner;
  ValueId value;
  std::string text;
};

Tracer::Tracer(std::string name, Interpreter* outer) : graph_(std::make_shared<Graph>()), outer_(outer) { graph_->name = std::move(name); }

Tensor Tracer::wrap(ValueId value, CallSite site) {
  const Value& v = graph_->values[size_t(value)];
  std::string text = v.name.empty() ? fmt::format("%{} {}", value, to_string(v.type))
                                    : fmt::format("{} {}", v.name, to_string(v.type));
  if (site.file) text += " made at " + to_string(site);
  return Tensor::symbolic(v.type, std::make_shared<Traced>(this, value, std::move(text)));
}

Tensor Tracer::add_input(const TensorType& type, std::string name) {
  return wrap(graph_->add_input(type, std::move(name)), {});
}

ValueId Tracer::value_of(const Tensor& tensor) {
  if (tensor.is_symbolic()) {
    if (auto* traced = dynamic_cast<Traced*>(tensor.symbol().get()); traced && traced->owner == this)
      return traced->value;
    if (!outer_)
      fail(ErrorCode::invalid_argument,
           fmt::format("trace: {} belongs to another trace", tensor.symbol()->describe()),
           "Pass it as an input of the traced function");
  }
  if (const auto it = constants_.find(tensor.id()); it != constants_.end()) return it->second;
  ValueId value;
  if (outer_) {
    value = graph_->add_input(tensor.type(), fmt::format("c{}", captured_.size()));
    captured_.push_back(tensor);
  } else {
    value = graph_->add_constant(tensor.dense());
  }
  constants_.emplace(tensor.id(), value);
  keep_.push_back(tensor);
  return value;
}

std::vector<Tensor> Tracer::apply(const OpCall& call) {
  Node node{&call.op, call.params, {}, {}, call.site, module_path()};
  for (const Tensor& t : call.inputs) node.inputs.push_back(value_of(t));
  for (const TensorType& t : call.output_types) node.outputs.push_back(graph_->add_value(t));
  std::vector<Tensor> out;
  for (ValueId v : node.outputs) out.push_back(wrap(v, call.site));
  graph_->nodes.push_back(std::move(node));
  return out;
}

Tensor Tracer::read(const Variable& variable) {
  if (outer_) {
    InterpreterScope scope(*outer_);
    return outer_->read(variable);
  }
  const auto [it, fresh] = variables_.emplace(variable.cell().get(), int(graph_->variables.size()));
  if (fresh) {
    std::string name = variable.name().empty() ? fmt::format("v{}", graph_->variables.size()) : variable.name();
    for (const Value& v : graph_->values)
      if (v.name == name) {  // names are labels in the text form: keep them apart
        name += fmt::format("_{}", graph_->values.size());
        break;
      }
    const ValueId value = graph_->add_value(variable.type(), name);
    graph_->variables.push_back({value, variable});
    current_[it->second] = wrap(value, {});
  }
  return current_[it->second];
}

void Tracer::assign(const Variable& variable, const Tensor& value) {
  if (outer_)
    fail(ErrorCode::unsupported, "trace: variable " + variable.name() + " is assigned inside a branch or loop",
         "Return the value from the branch and assign it outside");
  read(variable);
  current_[variables_.at(variable.cell().get())] = wrap(value_of(value), {});
}

std::shared_ptr<Graph> Tracer::finish(const std::vector<Tensor>& outputs) {
  for (const Tensor& t : outputs) {
    if (!t.defined()) fail(ErrorCode::invalid_argument, "trace: the function returned an undefined tensor");
    graph_->outputs.push_back(value_of(t));
  }
  for (const auto& [index, tensor] : current_) {
    const ValueId value = value_of(tensor);
    if (value != graph_->variables[size_t(index)].value) graph_->assigns.push_back({index, value});
  }
  return graph_;
}

GraphPtr trace(const Function& function, const std::vector<TensorType>& inputs,
               const std::vector<std::string>& input_names, const std::string& name) {
  Tracer tracer(name);
  std::vector<Tensor> in;
  for (size_t i = 0; i < inputs.size(); ++i)
    in.push_back(tracer.add_input(inputs[i], i < input_names.size() ? input_names[i] : fmt::format("x{}", i)));
  InterpreterScope scope(tracer);
  return tracer.finish(function(in));
}

std::vector<Tensor> interpret(const Graph& graph, const std::vector<Tensor>& inputs) {
  if (inputs.size() != graph.inputs.size())
    fail(ErrorCode::invalid_argument,
         fmt::format("graph {}: got {} inputs, expected {}", graph.name, inputs.size(), graph.inputs.size()));
  std::vector<Tensor> values(graph.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].type() != graph.type(graph.inputs[i]))
      fail(ErrorCode::shape_mismatch,
           fmt::format("graph {}: input {}: got {}, expected {}", graph.name, graph.values[size_t(graph.inputs[i])].name,
                       to_string(inputs[i].type()), to_string(graph.type(graph.inputs[i]))));
    values[size_t(graph.inputs[i])] = inputs[i];
  }
  for (const auto& v : graph.variables) {
    if (!v.variable.defined())
      fail(ErrorCode::invalid_argument, "graph: variable " + graph.values[size_t(v.value)].name + " is not bound");
    values[size_t(v.value)] = v.variable.read();
  }
  for (const auto& c : graph.constants) values[size_t(c.value)] = c.tensor;
  std::vector<int> left(graph.values.size(), 0);  // reads to come, so that values go as soon as they can
  for (const Node& n : graph.nodes)
    for (ValueId v : n.inputs) ++left[size_t(v)];
  const auto results = result_uses(graph);
  for (const Node& node : graph.nodes) {
    std::vector<Tensor> in;
    for (ValueId v : node.inputs) in.push_back(values[size_t(v)]);
    auto out = apply(*node.op, in, node.params, node.site);
    for (size_t i = 0; i < out.size(); ++i) values[size_t(node.outputs[i])] = std::move(out[i]);
    for (ValueId v : node.inputs)
      if (--left[size_t(v)] == 0 && results[size_t(v)] == 0) values[size_t(v)] = {};
  }
  std::vector<Tensor> outputs;
  for (ValueId v : graph.outputs) outputs.push_back(values[size_t(v)]);
  for (const auto& a : graph.assigns) graph.variables[size_t(a.variable)].variable.assign(values[size_t(a.value)]);
  return outputs;
}

}  // namespace cairn
