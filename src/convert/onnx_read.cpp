// SPDX-License-Identifier: Apache-2.0
// ONNX → graph, for concrete input types, so that every shape is known and shape arithmetic folds away.
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/file.h"
#include "convert/onnx.h"
#include "ir/graph.h"
#include "ops/catalog.h"
#include "ops/interpreter.h"

namespace cairn::onnx {
namespace pb = ::onnx;

struct Model::State {
  pb::ModelProto proto;
  Metadata metadata;
  std::vector<Port> inputs, outputs;
  std::unordered_map<std::string, Tensor> initializers;
  std::string name;
};

namespace {

std::string shown(const std::string& text) { return printable(text.substr(0, 200)); }

Port port_of(const pb::ValueInfoProto& info) {
  if (!info.type().has_tensor_type())
    fail(ErrorCode::unsupported, fmt::format("onnx: '{}' is no tensor", shown(info.name())));
  const auto& t = info.type().tensor_type();
  Port port{info.name(), from_onnx(t.elem_type(), "'" + shown(info.name()) + "'"), {}};
  if (t.shape().dim_size() > kMaxRank)
    fail(ErrorCode::unsupported, fmt::format("onnx: '{}' has {} axes, expected at most {}", shown(info.name()),
                                             t.shape().dim_size(), kMaxRank));
  for (const auto& d : t.shape().dim()) {
    if (d.has_dim_value() && d.dim_value() < 0)
      fail(ErrorCode::parse, fmt::format("onnx: '{}' has a negative dimension", shown(info.name())));
    port.shape.push_back(d.has_dim_value() ? d.dim_value() : -1);
  }
  return port;
}

// Builds a graph from the nodes, one after another.
class Builder {
 public:
  Builder(const Model::State& model, const std::vector<TensorType>& types) : graph_(std::make_shared<Graph>()) {
    for (const auto& [name, tensor] : model.initializers) known_[name] = tensor;
    for (size_t i = 0; i < types.size(); ++i)
      values_[model.inputs[i].name] = graph_->add_input(types[i], label(model.inputs[i].name));
  }

  void add(const pb::NodeProto& node) {
    try {
      if (!node.domain().empty() && node.domain() != "ai.onnx")
        fail(ErrorCode::unsupported, fmt::format("onnx: operator {}.{} is not of the standard set", shown(node.domain()),
                                                 shown(node.op_type())));
      for (const std::string& name : node.input())
        if (!name.empty() && !known_.contains(name) && !values_.contains(name))
          fail(ErrorCode::parse, "onnx: reads '" + shown(name) + "', which nothing has made");
      convert(node);
    } catch (Error& e) {
      throw e.add_frame(fmt::format("node '{}' ({})", shown(node.name()), shown(node.op_type())));
    }
  }

  GraphPtr finish(const std::vector<Port>& outputs) {
    for (const Port& p : outputs) {
      if (!known_.contains(p.name) && !values_.contains(p.name))
        fail(ErrorCode::parse, "onnx: nothing makes the output '" + shown(p.name) + "'");
      graph_->outputs.push_back(value(p.name));
    }
    verify(*graph_);
    return graph_;
  }

 private:
  static std::string label(const std::string& name) {  // what the text form can spell
    std::string out;
    for (char c : name) out += std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '/' ? c : '_';
    return out;
  }

  ValueId value(const std::string& name) {
    if (const auto it = values_.find(name); it != values_.end()) return it->second;
    const ValueId v = graph_->add_constant(known_.at(name));
    values_[name] = v;
    return v;
  }
  const TensorType& type(const std::string& name) const {
    if (const auto it = known_.find(name); it != known_.end()) return it->second.type();
    return graph_->type(values_.at(name));
  }

  OnnxCall call_of(const pb::NodeProto& node) const {
    OnnxCall call;
    for (const auto& a : node.attribute()) {
      switch (a.type()) {
        case pb::AttributeProto::INT: call.attributes.push_back({a.name(), int64_t(a.i())}); break;
        case pb::AttributeProto::FLOAT: call.attributes.push_back({a.name(), double(a.f())}); break;
        case pb::AttributeProto::STRING: call.attributes.push_back({a.name(), a.s()}); break;
        case pb::AttributeProto::INTS:
          call.attributes.push_back({a.name(), std::vector<int64_t>(a.ints().begin(), a.ints().end())});
          break;
        case pb::AttributeProto::FLOATS:
          call.attributes.push_back({a.name(), std::vector<double>(a.floats().begin(), a.floats().end())});
          break;
        default: break;  // tensors and graphs: by the operators that take them
      }
    }
    for (int i = 0; i < node.input_size(); ++i)
      if (const auto it = known_.find(node.input(i)); it != known_.end()) call.constants.emplace_back(i, it->second);
    return call;
  }

  // A call on named operands; computed now when all are constants and the result is small.
  std::vector<std::string> emit(const OpDef& op, const std::vector<std::string>& inputs, Params params,
                                const std::vector<std::string>& outputs) {
    constexpr int64_t kMostFolded = int64_t(1) << 28;  // bytes: a few attributes can ask for any size
    bool constant = true;
    TypeList types;
    for (const auto& name : inputs) constant = constant && known_.contains(name), types.push_back(type(name));
    if (constant)
      for (const auto& t : op.infer(params, types)) constant = constant && t.bytes() <= kMostFolded;
    if (constant) {
      InterpreterScope eager(eager_interpreter());
      std::vector<Tensor> in;
      for (const auto& name : inputs) in.push_back(known_.at(name));
      const auto out = apply(op, in, params);
      for (size_t i = 0; i < outputs.size() && i < out.size(); ++i) known_[outputs[i]] = out[i].dense();
      return outputs;
    }
    std::vector<ValueId> in;
    for (const auto& name : inputs) in.push_back(value(name));
    const auto out = graph_->add_node(op, in, std::move(params));
    for (size_t i = 0; i < outputs.size() && i < out.size(); ++i)
      if (!outputs[i].empty()) values_[outputs[i]] = out[i];
    return outputs;
  }
  std::string temporary() { return fmt::format("\x01{}", ++temporaries_); }
  void alias(const std::string& from, const std::string& to) {
    if (const auto it = known_.find(from); it != known_.end()) known_[to] = it->second;
    else values_[to] = values_.at(from);
  }
  void reshape(const std::string& from, const Shape& shape, const std::string& to) {
    emit(ops::reshape_op, {from}, ops::reshape_op.make_params({{"shape", std::vector<int64_t>(shape.begin(), shape.end())}}), {to});
  }

  void convert(const pb::NodeProto& node) {
    const std::string& op = node.op_type();
    const auto need = [&](int inputs) {
      if (node.input_size() < inputs || node.output_size() < 1)
        fail(ErrorCode::parse, fmt::format("onnx: got {} inputs and {} outputs", node.input_size(), node.output_size()));
    };
    const OnnxCall call = call_of(node);
    if (op == "Constant") {
      need(0);
      for (const auto& a : node.attribute())
        if (a.name() == "value") known_[node.output(0)] = from_onnx(a.t());
        else if (a.name() == "value_float") known_[node.output(0)] = Tensor::scalar(a.f());
        else if (a.name() == "value_int") known_[node.output(0)] = Tensor::from<int64_t>({a.i()}, {});
        else if (a.name() == "value_ints")
          known_[node.output(0)] = Tensor::from(std::vector<int64_t>(a.ints().begin(), a.ints().end()), {a.ints_size()});
      if (!known_.contains(node.output(0))) fail(ErrorCode::unsupported, "onnx: a constant of an unknown kind");
      return;
    }
    need(1);
    const Shape& in = type(node.input(0)).shape;
    if (op == "Identity" || op == "Dropout") return alias(node.input(0), node.output(0));
    if (op == "Shape") {
      known_[node.output(0)] = Tensor::from(in.span(), {in.rank()});
      return;
    }
    if (op == "Flatten") {
      const int axis = int(call.integer("axis", 1)) + (call.integer("axis", 1) < 0 ? in.rank() : 0);
      if (axis < 0 || axis > in.rank()) fail(ErrorCode::parse, "onnx: axis out of range");
      Shape out{1, 1};
      for (int i = 0; i < in.rank(); ++i) out[i < axis ? 0 : 1] *= in[i];
      return reshape(node.input(0), out, node.output(0));
    }
    if (op == "Squeeze" || op == "Unsqueeze") {
      std::vector<int64_t> axes;
      if (const Tensor* t = call.constant(1)) axes = t->values<int64_t>();
      else if (node.input_size() > 1) fail(ErrorCode::unsupported, "onnx: axes that are no constant");
      const bool add = op == "Unsqueeze";
      const int rank = in.rank() + (add ? int(axes.size()) : 0);
      std::vector<char> marked(size_t(rank), 0);
      for (int64_t a : axes) marked[size_t(normalize_axis(a, rank))] = 1;
      Shape out;
      if (add) {
        for (int i = 0, k = 0; i < rank; ++i) out.push_back(marked[size_t(i)] ? 1 : (k < in.rank() ? in[k++] : 1));
      } else {
        for (int i = 0; i < rank; ++i)
          if (axes.empty() ? in[i] != 1 : !marked[size_t(i)]) out.push_back(in[i]);
      }
      return reshape(node.input(0), out, node.output(0));
    }
    if (op == "GlobalAveragePool" || op == "GlobalMaxPool") {
      std::vector<int64_t> axes;
      for (int i = 2; i < in.rank(); ++i) axes.push_back(i);
      const OpDef& reduce = op == "GlobalAveragePool" ? ops::mean_op : ops::max_op;
      emit(reduce, {node.input(0)}, reduce.make_params({{"axes", axes}, {"keep", true}}), {node.output(0)});
      return;
    }
    if (op == "Gemm") {
      need(2);
      const double alpha = call.number("alpha", 1), beta = call.number("beta", 1);
      std::string product = node.input_size() > 2 && !node.input(2).empty() ? temporary() : node.output(0);
      std::string scaled = alpha == 1 ? product : temporary();
      emit(ops::matmul_op, {node.input(0), node.input(1)},
           ops::matmul_op.make_params({{"transpose_a", call.integer("transA", 0) != 0}, {"transpose_b", call.integer("transB", 0) != 0}}),
           {scaled});
      const auto scale = [&](const std::string& from, double by, const std::string& to) {
        const std::string c = temporary();
        known_[c] = Tensor::scalar(by, type(from).dtype);
        emit(ops::mul_op, {from, c}, {}, {to});
      };
      if (alpha != 1) scale(scaled, alpha, product);
      if (product == node.output(0)) return;
      std::string bias = node.input(2);
      if (beta != 1) scale(bias, beta, bias = temporary());
      emit(ops::add_op, {product, bias}, {}, {node.output(0)});
      return;
    }
    if (op == "Sum" && node.input_size() > 1) {
      std::string total = node.input(0);
      for (int i = 1; i < node.input_size(); ++i) {
        const std::string next = i + 1 == node.input_size() ? node.output(0) : temporary();
        emit(ops::add_op, {total, node.input(i)}, {}, {next});
        total = next;
      }
      return;
    }
    if (op == "BatchNormalization" && call.integer("training_mode", 0) != 0)
      fail(ErrorCode::unsupported, "onnx: a batch norm in training mode", "Export the model for inference");
    by_definition(node, call);
  }

  // Operators whose definitions say how they stand in ONNX.
  void by_definition(const pb::NodeProto& node, const OnnxCall& call) {
    bool named = false;
    for (const OpDef* op : all_ops()) {
      if (op->onnx.op_type != node.op_type() || !op->onnx.read) continue;
      named = true;
      const bool variadic = !op->inputs.empty() && op->inputs.back().variadic;
      std::vector<std::string> operands;
      for (int i = 0; i < node.input_size() && (variadic || size_t(i) < op->inputs.size()); ++i) {
        if (node.input(i).empty()) {
          if (variadic || !op->inputs[size_t(i)].optional) fail(ErrorCode::parse, fmt::format("onnx: input {} is missing", i));
          continue;
        }
        operands.push_back(node.input(i));
      }
      const size_t least = op->inputs.size() - (op->inputs.empty() || !op->inputs.back().optional ? 0 : 1);
      if (operands.size() < least)
        fail(ErrorCode::parse, fmt::format("onnx: got {} inputs, expected {}", operands.size(), least));
      for (int i = int(op->inputs.size()); !variadic && i < node.input_size(); ++i)
        if (!node.input(i).empty() && !call.constant(i))
          fail(ErrorCode::unsupported, fmt::format("onnx: input {} ('{}') is no constant", i, shown(node.input(i))));
      TypeList types;
      for (const auto& name : operands) types.push_back(type(name));
      const auto params = op->onnx.read(call, types);
      if (!params) continue;
      emit(*op, operands, *params, {node.output().begin(), node.output().end()});
      return;
    }
    if (!named)
      fail(ErrorCode::unsupported, fmt::format("onnx: operator {} is not known", shown(node.op_type())));
    fail(ErrorCode::unsupported, fmt::format("onnx: operator {} with these attributes is not supported", node.op_type()));
  }

  std::shared_ptr<Graph> graph_;
  std::unordered_map<std::string, Tensor> known_;
  std::unordered_map<std::string, ValueId> values_;
  int temporaries_ = 0;
};

}  // namespace

Model Model::read(const std::filesystem::path& path) {
  const FileMap map(path);
  return parse(map.bytes(), printable(path));
}

Model Model::parse(std::string_view bytes, const std::string& name) {
  auto state = std::make_shared<State>();
  state->name = name;
  if (bytes.size() > size_t(INT32_MAX))
    fail(ErrorCode::unsupported, "onnx: " + name + " is larger than 2 GiB");
  if (bytes.empty() || !state->proto.ParseFromArray(bytes.data(), int(bytes.size())) || !state->proto.has_graph())
    fail(ErrorCode::parse, "onnx: " + name + " is no ONNX model");
  const auto& proto = state->proto;
  int64_t opset = 0;
  for (const auto& o : proto.opset_import())
    if (o.domain().empty() || o.domain() == "ai.onnx") opset = std::max<int64_t>(opset, o.version());
  if (opset < kOldestOpset || opset > kNewestOpset)
    fail(ErrorCode::unsupported,
         fmt::format("onnx: {} has opset {}, expected {} … {}", name, opset, kOldestOpset, kNewestOpset),
         "Convert it with onnx.version_converter, or export it anew");
  for (const auto& p : proto.metadata_props()) {
    if (p.key() == "cairn.task") state->metadata.task = p.value();
    else if (p.key() == "cairn.transform") state->metadata.transform = p.value();
    else if (p.key() == "cairn.labels") {
      const auto list = nlohmann::json::parse(p.value(), nullptr, false);
      if (!list.is_array()) fail(ErrorCode::parse, "onnx: " + name + ": cairn.labels is no JSON list");
      for (const auto& item : list) {
        if (!item.is_string()) fail(ErrorCode::parse, "onnx: " + name + ": cairn.labels holds something else than text");
        state->metadata.labels.push_back(item.get<std::string>());
      }
    } else {
      state->metadata.extra[p.key()] = p.value();
    }
  }
  if (proto.graph().sparse_initializer_size() > 0)
    fail(ErrorCode::unsupported, "onnx: " + name + " has sparse tensors");
  for (const auto& t : proto.graph().initializer()) state->initializers[t.name()] = from_onnx(t);
  state->proto.mutable_graph()->clear_initializer();  // once in memory is enough
  for (const auto& i : proto.graph().input())
    if (!state->initializers.contains(i.name())) state->inputs.push_back(port_of(i));
  for (const auto& o : proto.graph().output()) state->outputs.push_back(port_of(o));
  if (state->outputs.empty()) fail(ErrorCode::parse, "onnx: " + name + " has no outputs");
  Model model;
  model.state_ = std::move(state);
  return model;
}

const Metadata& Model::metadata() const { return state_->metadata; }
const std::vector<Port>& Model::inputs() const { return state_->inputs; }
const std::vector<Port>& Model::outputs() const { return state_->outputs; }

GraphPtr Model::graph(const std::vector<TensorType>& types) const {
  if (types.size() != state_->inputs.size())
    fail(ErrorCode::invalid_argument, fmt::format("onnx: {}: got {} inputs, expected {}", state_->name, types.size(),
                                                  state_->inputs.size()));
  for (size_t i = 0; i < types.size(); ++i) {
    const Port& p = state_->inputs[i];
    bool fits = types[i].dtype == p.dtype && types[i].shape.rank() == int(p.shape.size());
    for (int k = 0; fits && k < types[i].shape.rank(); ++k) fits = p.shape[size_t(k)] < 0 || p.shape[size_t(k)] == types[i].shape[k];
    if (!fits) {
      std::string expected = std::string(name(p.dtype)) + "[";
      for (size_t k = 0; k < p.shape.size(); ++k)
        expected += (k ? "," : "") + (p.shape[k] < 0 ? std::string("?") : std::to_string(p.shape[k]));
      fail(ErrorCode::shape_mismatch,
           fmt::format("onnx: input '{}': got {}, expected {}]", shown(p.name), to_string(types[i]), expected));
    }
  }
  try {
    Builder builder(*state_, types);
    for (const auto& node : state_->proto.graph().node()) builder.add(node);
    return builder.finish(state_->outputs);
  } catch (Error& e) {
    throw e.add_frame(state_->name);
  }
}

}  // namespace cairn::onnx
