// SPDX-License-Identifier: Apache-2.0
// What an operator is: one OpSpec states every fact about it, once. Leaving a facet out does not compile;
// a facet that does not apply is spelt with its reason, e.g. no_gradient("integer output").
#pragma once
#include <cairn/extend/params.h>
#include <cairn/tensor.h>

#include <optional>

namespace cairn {

using Types = std::span<const TensorType>;
using TypeList = std::vector<TensorType>;

// ---- inputs and outputs ----
// Sets of dtypes, as a bit mask over DType.
using DTypeSet = uint16_t;
constexpr DTypeSet dtypes(std::initializer_list<DType> list) {
  DTypeSet set = 0;
  for (DType d : list) set = DTypeSet(set | (1u << unsigned(d)));
  return set;
}
inline constexpr DTypeSet any_float = dtypes({DType::f64, DType::f32, DType::f16, DType::bf16});
inline constexpr DTypeSet any_integer = dtypes({DType::i64, DType::i32, DType::i16, DType::i8, DType::u8});
inline constexpr DTypeSet any_number = any_float | any_integer;
inline constexpr DTypeSet boolean_only = dtypes({DType::boolean});
inline constexpr DTypeSet any_dtype = any_number | boolean_only;
inline constexpr DTypeSet any_index = dtypes({DType::i64, DType::i32});
constexpr bool contains(DTypeSet set, DType d) { return (set >> unsigned(d)) & 1; }

struct ArgSpec {
  std::string name;
  DTypeSet dtypes = any_dtype;
  bool variadic = false;  // the last input may repeat, once or more
  bool optional = false;  // the last input may be left out
};

// ---- reference ----
// A dense tensor as the reference sees it: floats in `f` (double), integers and bool in `i` (int64; on the
// way out values wrap to the output's own type). Outputs arrive sized and zeroed.
struct RefTensor {
  TensorType type;
  std::vector<double> f;
  std::vector<int64_t> i;
  const Shape& shape() const { return type.shape; }
  bool is_float() const { return cairn::is_float(type.dtype); }
  int64_t numel() const { return type.numel(); }
  double at(int64_t k) const { return is_float() ? f[size_t(k)] : double(i[size_t(k)]); }
  // Copies one element of the same dtype.
  void copy(int64_t to, const RefTensor& src, int64_t from) {
    if (is_float()) f[size_t(to)] = src.f[size_t(from)];
    else i[size_t(to)] = src.i[size_t(from)];
  }
};
using RefIn = std::span<const RefTensor>;
using RefOut = std::span<RefTensor>;

// ---- gradient ----
struct SavedRef {
  bool is_output;
  int index;  // kAllInputs: every input
};
inline constexpr int kAllInputs = -1;
inline SavedRef input(int i) { return {false, i}; }
inline SavedRef every_input() { return {false, kAllInputs}; }
inline SavedRef output(int i) { return {true, i}; }

// What a gradient rule may look at: the values it declared in `saves`, and every type.
class CAIRN_API Saved {
 public:
  virtual ~Saved() = default;
  virtual Tensor input(int i) const = 0;   // internal error when not declared
  virtual Tensor output(int i) const = 0;
  virtual const TensorType& input_type(int i) const = 0;
  virtual const TensorType& output_type(int i) const = 0;
  virtual int input_count() const = 0;
  virtual bool needs(int i) const = 0;     // is the gradient of input i wanted?
};
// One gradient an input; an undefined Tensor where there is none (or none is wanted).
using Grads = std::vector<Tensor>;
template <class... T>
Grads grads(T... t) { return {std::move(t)...}; }

// ---- facets ----
// A facet that does not apply, with its reason.
struct NotApplicable { std::string reason; };
inline NotApplicable no_gradient(std::string reason) { return {std::move(reason)}; }
inline NotApplicable no_factors(std::string reason) { return {std::move(reason)}; }
inline NotApplicable no_onnx(std::string reason) { return {std::move(reason)}; }

template <class Signature>
struct Facet {  // no default constructor: must be given
  template <class F>
    requires(!std::is_same_v<std::decay_t<F>, Facet> && !std::is_same_v<std::decay_t<F>, NotApplicable>)
  Facet(F&& f) : call(std::forward<F>(f)) {}
  Facet(NotApplicable n) : reason(std::move(n.reason)) {}
  std::function<Signature> call;  // empty when not applicable
  std::string reason;             // why not
  explicit operator bool() const { return bool(call); }
};

struct Cost {
  double flops = 0;  // multiply and add count as two
  double bytes = 0;  // least traffic: inputs read once, outputs written once
};

// How an operator may join others in one kernel.
enum class FusionClass { elementwise, reduction, row_reduction, view, opaque };
struct Fusion {
  FusionClass kind;
  std::string reason;  // for opaque: why it stands alone
  Fusion(FusionClass k, std::string why = {}) : kind(k), reason(std::move(why)) {}
};
inline Fusion elementwise() { return {FusionClass::elementwise}; }
inline Fusion reduction() { return {FusionClass::reduction}; }
inline Fusion row_reduction() { return {FusionClass::row_reduction}; }
inline Fusion view_only() { return {FusionClass::view}; }
inline Fusion opaque(std::string why) { return {FusionClass::opaque, std::move(why)}; }

// ONNX: attributes use the ParamValue kinds (Graph aside) plus lists of floats; an operand that ONNX takes
// as a constant input instead of an attribute goes into `constants` (input position → tensor).
using OnnxValue = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;
struct OnnxAttribute {
  std::string name;
  OnnxValue value;
};
struct OnnxCall {
  std::vector<OnnxAttribute> attributes;
  std::vector<std::pair<int, Tensor>> constants;  // extra inputs
  const OnnxAttribute* find(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t fallback) const;
  double number(std::string_view name, double fallback) const;
  std::string text(std::string_view name, std::string fallback) const;
  std::vector<int64_t> integers(std::string_view name, std::vector<int64_t> fallback) const;
  const Tensor* constant(int position) const;  // null when the operand is not constant or absent
};
template <class P>
struct OnnxMapping {
  std::string op_type;  // e.g. "Softmax"
  int since = 1;        // the opset version that the mapping follows
  std::function<OnnxCall(const P&, Types)> write;              // parameters → attributes
  std::function<std::optional<P>(const OnnxCall&, Types)> read;  // attributes → parameters; nullopt: another op reads it
};
template <class P>
struct OnnxFacet {
  OnnxFacet(OnnxMapping<P> m) : mapping(std::move(m)) {}
  OnnxFacet(NotApplicable n) : reason(std::move(n.reason)) {}
  std::optional<OnnxMapping<P>> mapping;
  std::string reason;
};

// ---- samples for the conformance suite ----
struct SampleInput {
  TensorType type;
  double low = -2, high = 2;  // floats: distinct values, none within 0.02 of 0; integers: low … high-1
};
inline SampleInput f32(Shape s, double low = -2, double high = 2) { return {{DType::f32, s}, low, high}; }
inline SampleInput f64(Shape s, double low = -2, double high = 2) { return {{DType::f64, s}, low, high}; }
inline SampleInput i64(Shape s, double low, double high) { return {{DType::i64, s}, low, high}; }
inline SampleInput i32(Shape s, double low, double high) { return {{DType::i32, s}, low, high}; }
inline SampleInput u8(Shape s) { return {{DType::u8, s}, 0, 256}; }
inline SampleInput boolean(Shape s) { return {{DType::boolean, s}, 0, 2}; }
template <class P>
struct SampleOf {
  std::vector<SampleInput> inputs;
  P params{};
};

template <class T>
struct Listed {  // a list that must be given; empty only through none("reason")
  Listed(std::initializer_list<T> list) : items(list) {}
  Listed(std::vector<T> list) : items(std::move(list)) {}
  Listed(NotApplicable n) : reason(std::move(n.reason)) {}
  std::vector<T> items;
  std::string reason;
};
inline NotApplicable none(std::string reason) { return {std::move(reason)}; }

// Dense or strided view of an operand, for operators that only rename elements.
struct StridedView {
  Shape shape, strides;
  int64_t offset = 0;  // elements
};

template <class P>
struct OpSpec {
  std::string name;
  std::vector<ArgSpec> inputs;   // {{"x", any_float}, …}
  std::vector<ArgSpec> outputs;  // {{"y"}}
  // Output types from input types; throws with `got` and `expected`.
  Facet<TypeList(const P&, Types)> infer;
  // Named dimensions, "n c h w, k c r s -> n k y x": one group an operand, in order. A name that no output
  // has is summed over (its split gives partial sums); "name!" must stay whole; "1" is a length-one axis
  // that broadcasts; "name^max" is reduced by max (also ^min, ^prod). The suite proves each string.
  Facet<std::string(const P&, Types)> factors;
  // The meaning, as plain loops.
  Facet<void(const P&, RefIn, RefOut)> reference;
  Listed<SavedRef> saves;
  // dy[k] is undefined when output k has no gradient. Written with operators.
  Facet<Grads(const P&, const Saved&, std::span<const Tensor> dy)> gradient;
  Facet<Cost(const P&, Types in, Types out)> cost;
  Fusion fusion;
  OnnxFacet<P> onnx;
  Listed<SampleOf<P>> samples;
  // Optional: the same meaning in simpler operators (export, second order, missing kernels).
  std::function<std::vector<Tensor>(const P&, std::span<const Tensor>)> decompose = {};
  // Optional: for operators that only rename elements, the output as a view of input 0; nullopt: copy.
  std::function<std::optional<StridedView>(const P&, const StridedView& in, Types in_types)> view = {};
  // Optional: a wider tolerance for the suite than the dtype's, with the reason.
  double tolerance = 0;
  std::string tolerance_reason = {};
};

// An operator with its parameter type erased: what graphs, kernels and tools hold (by address).
struct OpDef {
  struct Onnx {
    std::string op_type;
    int since = 0;
    std::function<OnnxCall(const Params&, Types)> write;
    std::function<std::optional<Params>(const OnnxCall&, Types)> read;
    std::string reason;  // when there is no mapping
  };
  struct Sample {
    std::vector<SampleInput> inputs;
    Params params;
  };
  std::string name, file;
  std::vector<ArgSpec> inputs, outputs;
  std::function<Params(const NamedValues&)> make_params;
  std::function<TypeList(const Params&, Types)> infer;
  std::function<std::string(const Params&, Types)> factors;
  std::function<void(const Params&, RefIn, RefOut)> reference;
  std::vector<SavedRef> saves;
  std::function<Grads(const Params&, const Saved&, std::span<const Tensor>)> gradient;
  std::string no_gradient_reason, no_factors_reason;
  std::function<Cost(const Params&, Types, Types)> cost;
  Fusion fusion = FusionClass::opaque;
  Onnx onnx;
  std::vector<Sample> samples;
  std::function<std::vector<Tensor>(const Params&, std::span<const Tensor>)> decompose;
  std::function<std::optional<StridedView>(const Params&, const StridedView&, Types)> view;
  double tolerance = 0;
  std::string tolerance_reason;
};

// Turns a spec into a definition. The result must live as long as the program (a namespace-scope const).
template <class P>
OpDef define(OpSpec<P> s, const char* file = __builtin_FILE()) {
  OpDef d;
  d.name = s.name;
  d.file = file;
  d.inputs = std::move(s.inputs);
  d.outputs = std::move(s.outputs);
  d.make_params = [name = s.name](const NamedValues& v) { return make_params<P>(name, v); };
  d.infer = [f = std::move(s.infer.call)](const Params& p, Types in) { return f(p.as<P>(), in); };
  if (s.factors)
    d.factors = [f = std::move(s.factors.call)](const Params& p, Types in) { return f(p.as<P>(), in); };
  d.no_factors_reason = s.factors.reason;
  d.reference = [f = std::move(s.reference.call)](const Params& p, RefIn in, RefOut out) { f(p.as<P>(), in, out); };
  d.saves = std::move(s.saves.items);
  if (s.gradient)
    d.gradient = [f = std::move(s.gradient.call)](const Params& p, const Saved& saved,
                                                  std::span<const Tensor> dy) { return f(p.as<P>(), saved, dy); };
  d.no_gradient_reason = s.gradient.reason;
  d.cost = [f = std::move(s.cost.call)](const Params& p, Types in, Types out) { return f(p.as<P>(), in, out); };
  d.fusion = s.fusion;
  d.onnx.reason = s.onnx.reason;
  if (s.onnx.mapping) {
    d.onnx.op_type = s.onnx.mapping->op_type;
    d.onnx.since = s.onnx.mapping->since;
    d.onnx.write = [f = s.onnx.mapping->write](const Params& p, Types in) { return f(p.as<P>(), in); };
    if (s.onnx.mapping->read)
      d.onnx.read = [f = s.onnx.mapping->read](const OnnxCall& c, Types in) -> std::optional<Params> {
        if (auto p = f(c, in)) return Params(std::move(*p));
        return std::nullopt;
      };
  }
  for (auto& sample : s.samples.items) d.samples.push_back({sample.inputs, Params(sample.params)});
  if (s.decompose)
    d.decompose = [f = std::move(s.decompose)](const Params& p, std::span<const Tensor> in) { return f(p.as<P>(), in); };
  if (s.view)
    d.view = [f = std::move(s.view)](const Params& p, const StridedView& in, Types types) { return f(p.as<P>(), in, types); };
  d.tolerance = s.tolerance;
  d.tolerance_reason = s.tolerance_reason;
  return d;
}

// Where the user's code called an operator.
struct CallSite {
  const char* file = nullptr;
  int line = 0;
};
CAIRN_API std::string to_string(const CallSite& site);  // "train.cpp:31", "" when unknown

// Calls an operator through the interpreter on top of this thread's stack. Checks arity and dtypes against
// the definition first; errors name operator, argument, module path and the user's line.
CAIRN_API std::vector<Tensor> apply(const OpDef& op, std::span<const Tensor> inputs, const Params& params = {},
                                    CallSite site = {});
inline Tensor apply1(const OpDef& op, std::initializer_list<Tensor> inputs, const Params& params = {},
                     CallSite site = {}) {
  return apply(op, std::span(inputs.begin(), inputs.size()), params, site)[0];
}

}  // namespace cairn
