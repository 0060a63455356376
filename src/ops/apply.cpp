// SPDX-License-Identifier: Apache-2.0
// From a call in user code to the interpreter on top of the stack: checks, type inference, error frames.
#include <fmt/format.h>

#include <utility>

#include "ops/context.h"
#include "ops/interpreter.h"

namespace cairn {
namespace {

thread_local Interpreter* top = nullptr;

std::string names(DTypeSet set) {
  if (set == any_float) return "a float dtype";
  if (set == any_integer) return "an integer dtype";
  if (set == any_number) return "a number dtype";
  std::string out;
  for (DType d : kAllDTypes)
    if (contains(set, d)) out += (out.empty() ? "" : " or ") + std::string(name(d));
  return out;
}

const ArgSpec& spec_of(const OpDef& op, size_t i) {
  return op.inputs[std::min(i, op.inputs.size() - 1)];
}

void check_inputs(const OpDef& op, std::span<const Tensor> inputs) {
  const size_t most = op.inputs.size();
  const bool variadic = most > 0 && op.inputs.back().variadic, optional = most > 0 && op.inputs.back().optional;
  const size_t least = most - (optional ? 1 : 0);
  if (inputs.size() < least || (inputs.size() > most && !variadic))
    fail(ErrorCode::invalid_argument, fmt::format("{}: got {} inputs, expected {}{}", op.name, inputs.size(), least,
                                                  variadic ? " or more" : optional ? fmt::format(" or {}", most) : ""));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ArgSpec& arg = spec_of(op, i);
    if (!inputs[i].defined())
      fail(ErrorCode::invalid_argument, fmt::format("{}: input {}: got an undefined tensor, expected a value", op.name, arg.name));
    if (!contains(arg.dtypes, inputs[i].dtype()))
      fail(ErrorCode::dtype_unsupported,
           fmt::format("{}: input {}: got {}, expected {}", op.name, arg.name, to_string(inputs[i].type()),
                       names(arg.dtypes)),
           "Convert it with cast(x, dtype)");
  }
}

}  // namespace

Interpreter& current_interpreter() { return top ? *top : eager_interpreter(); }
InterpreterScope::InterpreterScope(Interpreter& interpreter) : previous_(std::exchange(top, &interpreter)) {}
InterpreterScope::~InterpreterScope() { top = previous_; }

std::string to_string(const CallSite& site) {
  if (!site.file) return "";
  std::string_view path = site.file;
  if (const auto slash = path.rfind('/'); slash != path.npos) path.remove_prefix(slash + 1);
  return fmt::format("{}:{}", path, site.line);
}

std::vector<Tensor> apply(const OpDef& op, std::span<const Tensor> inputs, const Params& params, CallSite site) {
  try {
    check_inputs(op, inputs);
    std::array<TensorType, 8> few;
    TypeList many;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs.size() <= few.size()) few[i] = inputs[i].type();
      else many.push_back(inputs[i].type());
    const Types in = many.empty() ? Types(few.data(), inputs.size()) : Types(many);
    const TypeList out = op.infer(params, in);
    return current_interpreter().apply({op, inputs, params, out, site});
  } catch (Error& e) {
    if (e.frames().empty()) {  // the innermost call names itself; those around it only pass on
      const std::string where = to_string(site);
      std::string message = e.message();
      if (!message.starts_with(op.name) && e.code() != ErrorCode::internal) message = op.name + ": " + message;
      Error named(e.code(), std::move(message), e.hint());
      if (!module_path().empty()) named.add_frame("module " + module_path());
      named.add_frame(where.empty() ? "operator " + op.name : where);
      throw named;
    }
    throw;
  }
}

Variable::Variable(std::string name, Tensor initial, bool trainable)
    : cell_(std::make_shared<Cell>(Cell{std::move(name), initial.type(), trainable, initial, nullptr, 0})) {}

Tensor Variable::read() const { return current_interpreter().read(*this); }

void Variable::assign(const Tensor& value) const {
  if (value.type() != type())
    fail(ErrorCode::shape_mismatch, fmt::format("variable {}: assigned {}, expected {}", name(),
                                                to_string(value.type()), to_string(type())));
  current_interpreter().assign(*this, value);
}

Tensor Variable::value() const {
  if (!cell_->value.defined()) cell_->value = cell_->resident->to_plain();
  return cell_->value;
}

void Variable::set_value(Tensor value) const {
  if (value.type() != type())
    fail(ErrorCode::shape_mismatch, fmt::format("variable {}: given {}, expected {}", name(),
                                                to_string(value.type()), to_string(type())));
  cell_->value = std::move(value);
  cell_->resident.reset();
  ++cell_->version;
}

const OnnxAttribute* OnnxCall::find(std::string_view name) const {
  for (const auto& a : attributes)
    if (a.name == name) return &a;
  return nullptr;
}
namespace {
template <class T>
T attribute(const OnnxCall& call, std::string_view name, T fallback) {
  const OnnxAttribute* a = call.find(name);
  if (!a) return fallback;
  if (auto* v = std::get_if<T>(&a->value)) return *v;
  fail(ErrorCode::parse, fmt::format("onnx: attribute {} has the wrong kind", name));
}
}  // namespace
int64_t OnnxCall::integer(std::string_view n, int64_t fallback) const { return attribute(*this, n, fallback); }
double OnnxCall::number(std::string_view n, double fallback) const { return attribute(*this, n, fallback); }
std::string OnnxCall::text(std::string_view n, std::string fallback) const {
  return attribute(*this, n, std::move(fallback));
}
std::vector<int64_t> OnnxCall::integers(std::string_view n, std::vector<int64_t> fallback) const {
  return attribute(*this, n, std::move(fallback));
}
const Tensor* OnnxCall::constant(int position) const {
  for (const auto& [at, tensor] : constants)
    if (at == position) return &tensor;
  return nullptr;
}

}  // namespace cairn
