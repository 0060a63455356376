// SPDX-License-Identifier: Apache-2.0
// Graph → ONNX: traced at two batch sizes, legalised to operators that ONNX has, written as one file.
#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "convert/onnx.h"
#include "ir/trace.h"
#include "ops/catalog.h"
#include "passes/eliminate_common.h"
#include "passes/eliminate_dead.h"
#include "passes/fold_constants.h"
#include "passes/fold_norm.h"
#include "passes/simplify.h"

namespace cairn::onnx {
namespace {

namespace pb = ::onnx;

constexpr int64_t kBatches[2] = {2, 3};

// What ONNX would be told of a node; nullopt when it has to be decomposed.
std::optional<OnnxCall> call_of(const Graph& graph, const Node& node) {
  if (!node.op->onnx.write || node.op->onnx.since > kOpset) return std::nullopt;
  try {
    return node.op->onnx.write(node.params, graph.types(node.inputs));
  } catch (const Error& e) {
    if (e.code() == ErrorCode::unsupported) return std::nullopt;
    throw;
  }
}

std::string where(const Node& node) {
  std::string text = node.path.empty() ? node.op->name : node.op->name + " in " + node.path;
  if (node.site.file) text += " (" + to_string(node.site) + ")";
  return text;
}

// The graph with operators that ONNX lacks replaced by simpler ones.
Graph legalise(Graph graph) {
  for (int round = 0; round < 8; ++round) {
    bool clean = true;
    for (const Node& node : graph.nodes) clean = clean && call_of(graph, node).has_value();
    if (clean) return graph;
    Tracer tracer(graph.name);
    std::vector<Tensor> values(graph.values.size());
    for (ValueId v : graph.inputs) values[size_t(v)] = tracer.add_input(graph.type(v), graph.values[size_t(v)].name);
    for (const auto& c : graph.constants) values[size_t(c.value)] = c.tensor;
    InterpreterScope scope(tracer);
    for (const Node& node : graph.nodes) {
      std::vector<Tensor> in, out;
      for (ValueId v : node.inputs) in.push_back(values[size_t(v)]);
      if (call_of(graph, node)) {
        out = apply(*node.op, in, node.params, node.site);
      } else {
        if (!node.op->decompose)
          fail(ErrorCode::unsupported,
               fmt::format("onnx: {} has no ONNX form: {}", where(node), node.op->onnx.reason));
        out = node.op->decompose(node.params, in);
      }
      for (size_t i = 0; i < node.outputs.size(); ++i) values[size_t(node.outputs[i])] = out[i];
    }
    std::vector<Tensor> results;
    for (ValueId v : graph.outputs) results.push_back(values[size_t(v)]);
    graph = *tracer.finish(results);
  }
  fail(ErrorCode::internal, "onnx: decompositions do not end");
}

Graph prepare(const Function& function, std::vector<TensorType> types, const std::vector<std::string>& names,
              int64_t batch) {
  for (TensorType& t : types) {
    if (t.shape.rank() == 0) fail(ErrorCode::shape_mismatch, "onnx: every input needs a batch axis");
    t.shape[0] = batch;
  }
  Graph graph = *trace(function, types, names);
  if (!graph.assigns.empty())
    fail(ErrorCode::invalid_argument, "onnx: the function changes variables", "Trace it in evaluation mode");
  freeze_variables(graph);
  for (auto pass : {passes::eliminate_dead, passes::simplify, passes::fold_constants, passes::fold_norm}) pass(graph);
  graph = legalise(std::move(graph));
  for (auto pass : {passes::simplify, passes::fold_constants, passes::eliminate_common, passes::eliminate_dead}) pass(graph);
  return graph;
}

class Writer {
 public:
  Writer(const Graph& two, const Graph& three) : graph_(two), other_(three) {
    CAIRN_CHECK(two.nodes.size() == three.nodes.size(), "traces at two batch sizes differ in length");
    names_.resize(two.values.size());
  }

  void write(pb::ModelProto& model, const std::vector<std::string>& output_names, const Metadata& metadata) {
    model.set_ir_version(kIrVersion);
    model.set_producer_name("cairn");
    auto* opset = model.add_opset_import();
    opset->set_domain("");
    opset->set_version(kOpset);
    const auto note = [&](const std::string& key, const std::string& value) {
      auto* p = model.add_metadata_props();
      p->set_key(key);
      p->set_value(value);
    };
    note("cairn.task", metadata.task);
    if (!metadata.transform.empty()) note("cairn.transform", metadata.transform);
    if (!metadata.labels.empty()) note("cairn.labels", nlohmann::json(metadata.labels).dump());
    for (const auto& [key, value] : metadata.extra) note(key, value);

    out_ = model.mutable_graph();
    out_->set_name(graph_.name);
    if (output_names.size() != graph_.outputs.size())
      fail(ErrorCode::invalid_argument, fmt::format("onnx: got {} output names for {} outputs", output_names.size(),
                                                    graph_.outputs.size()));
    for (ValueId v : graph_.inputs) {
      names_[size_t(v)] = unique(graph_.values[size_t(v)].name);
      port(*out_->add_input(), names_[size_t(v)], v, v);
    }
    for (const std::string& name : output_names)
      if (!used_.insert(name).second) fail(ErrorCode::invalid_argument, "onnx: the name '" + name + "' is used twice");
    std::vector<std::pair<ValueId, std::string>> copies;  // an output that has a name already
    for (size_t i = 0; i < output_names.size(); ++i) {
      std::string& name = names_[size_t(graph_.outputs[i])];
      bool made = false;
      for (const Node& n : graph_.nodes)
        for (ValueId v : n.outputs) made = made || v == graph_.outputs[i];
      if (name.empty() && made) name = output_names[i];
      else copies.emplace_back(graph_.outputs[i], output_names[i]);
    }
    for (const auto& c : graph_.constants) {
      const std::string& given = graph_.values[size_t(c.value)].name;
      names_[size_t(c.value)] = unique(given.empty() ? "constant" : given);
      initializer(names_[size_t(c.value)], c.tensor);
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) node(graph_.nodes[i], other_.nodes[i]);
    for (const auto& [value, name] : copies) {
      auto* n = out_->add_node();
      n->set_op_type("Identity");
      n->add_input(names_[size_t(value)]);
      n->add_output(name);
    }
    for (size_t i = 0; i < output_names.size(); ++i)
      port(*out_->add_output(), output_names[i], graph_.outputs[i], other_.outputs[i]);
  }

 private:
  std::string unique(std::string name) {
    if (name.empty()) name = "value";
    std::string candidate = name;
    for (int k = 1; !used_.insert(candidate).second; ++k) candidate = fmt::format("{}_{}", name, k);
    return candidate;
  }

  void initializer(const std::string& name, const Tensor& tensor) {
    auto* proto = out_->add_initializer();
    to_onnx(tensor, *proto);
    proto->set_name(name);
  }

  // A dimension that is 2k at batch 2 and 3k at batch 3 follows the batch.
  void port(pb::ValueInfoProto& info, const std::string& name, ValueId a, ValueId b) {
    info.set_name(name);
    auto* type = info.mutable_type()->mutable_tensor_type();
    type->set_elem_type(to_onnx(graph_.type(a).dtype));
    const Shape &two = graph_.type(a).shape, &three = other_.type(b).shape;
    auto* shape = type->mutable_shape();
    for (int i = 0; i < two.rank(); ++i) {
      auto* dim = shape->add_dim();
      if (two[i] == three[i]) dim->set_dim_value(two[i]);
      else dim->set_dim_param(two[i] == kBatches[0] && three[i] == kBatches[1] ? "N" : fmt::format("{}N", two[i] / 2));
    }
  }

  void node(const Node& a, const Node& b) {
    CAIRN_CHECK(a.op == b.op, "traces at two batch sizes differ in operators");
    OnnxCall call = *call_of(graph_, a);
    follow_batch(a, call, *call_of(other_, b));
    auto* n = out_->add_node();
    n->set_op_type(a.op->onnx.op_type);
    n->set_name(unique(a.path.empty() ? a.op->name : a.path + "/" + a.op->name));
    for (ValueId v : a.inputs) n->add_input(names_[size_t(v)]);
    for (const auto& [position, tensor] : call.constants) {
      while (n->input_size() <= position) n->add_input("");
      const std::string name = unique(n->name() + "_" + std::to_string(position));
      initializer(name, tensor);
      n->set_input(position, name);
    }
    for (ValueId v : a.outputs) {
      std::string& name = names_[size_t(v)];
      if (name.empty()) name = unique(n->name() + "_out");
      n->add_output(name);
    }
    for (const auto& [name, value] : call.attributes) attribute(*n->add_attribute(), name, value);
  }

  // Parameters that hold the batch size are rewritten so that they follow it.
  void follow_batch(const Node& node, OnnxCall& call, const OnnxCall& other) {
    const auto fixed = [&](const std::string& what) {
      fail(ErrorCode::unsupported,
           fmt::format("onnx: {} fixes the batch size: its {} differs between batch 2 and 3", where(node), what),
           "Write the call so that it does not depend on the batch size, e.g. flatten instead of reshape");
    };
    for (size_t i = 0; i < call.attributes.size(); ++i)
      if (call.attributes[i].value != other.attributes[i].value) fixed("attribute " + call.attributes[i].name);
    for (size_t i = 0; i < call.constants.size(); ++i) {
      auto& [position, tensor] = call.constants[i];
      const Tensor& second = other.constants[i].second;
      if (tensor.type() == second.type() && tensor.to_doubles() == second.to_doubles()) continue;
      const bool is_shape = node.op == &ops::reshape_op || node.op == &ops::broadcast_to_op;
      if (!is_shape || tensor.type() != second.type()) fixed("operand " + std::to_string(position));
      auto dims = tensor.values<int64_t>();
      const auto later = second.values<int64_t>();
      int changed = 0;
      for (size_t k = 0; k < dims.size(); ++k)
        if (dims[k] != later[k]) {
          ++changed;
          // Reshape infers a −1; Expand keeps an axis that it is told is 1.
          dims[k] = node.op == &ops::reshape_op ? -1 : 1;
        }
      if (changed > 1 && node.op == &ops::reshape_op) fixed("shape");
      if (node.op == &ops::broadcast_to_op) {
        const Shape& in = graph_.type(node.inputs[0]).shape;
        const size_t extra = dims.size() - size_t(in.rank());
        for (size_t k = 0; k < dims.size(); ++k)
          if (dims[k] == 1 && later[k] != 1 && (k < extra || in[int(k - extra)] == 1)) fixed("shape");
      }
      tensor = Tensor::from(dims, {int64_t(dims.size())});
    }
  }

  static void attribute(pb::AttributeProto& a, const std::string& name, const OnnxValue& value) {
    a.set_name(name);
    std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, int64_t>) {
            a.set_type(pb::AttributeProto::INT);
            a.set_i(v);
          } else if constexpr (std::is_same_v<T, double>) {
            a.set_type(pb::AttributeProto::FLOAT);
            a.set_f(float(v));
          } else if constexpr (std::is_same_v<T, std::string>) {
            a.set_type(pb::AttributeProto::STRING);
            a.set_s(v);
          } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
            a.set_type(pb::AttributeProto::INTS);
            for (int64_t x : v) a.add_ints(x);
          } else {
            a.set_type(pb::AttributeProto::FLOATS);
            for (double x : v) a.add_floats(float(x));
          }
        },
        value);
  }

  const Graph &graph_, &other_;
  pb::GraphProto* out_ = nullptr;
  std::vector<std::string> names_;
  std::set<std::string> used_;
};

}  // namespace

void write(const std::filesystem::path& path, const Function& function, const std::vector<TensorType>& inputs,
           const std::vector<std::string>& input_names, const std::vector<std::string>& output_names,
           const Metadata& metadata) {
  const Graph two = prepare(function, inputs, input_names, kBatches[0]);
  const Graph three = prepare(function, inputs, input_names, kBatches[1]);
  pb::ModelProto model;
  Writer(two, three).write(model, output_names, metadata);
  std::string bytes;
  if (model.ByteSizeLong() > size_t(INT32_MAX) || !model.SerializeToString(&bytes))
    fail(ErrorCode::unsupported, "onnx: the model is larger than 2 GiB, which one file cannot hold");
  write_file(path, bytes);
}

}  // namespace cairn::onnx
