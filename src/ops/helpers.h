// SPDX-License-Identifier: Apache-2.0
// What operator definitions share: type checks, walks over dense reference tensors, factor strings.
#pragma once
#include <cairn/extend/op.h>
#include <cairn/ops.h>
#include <fmt/format.h>

#include <cmath>

namespace cairn::ops {

inline constexpr double kTranscendental = 10;  // flops that we count for exp, log, sin …
// 1 / (1 + e^−x), without overflow.
inline double logistic(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

// Fails unless all given types have one dtype. `names`: what the inputs are called.
void check_same_dtype(Types in, std::initializer_list<const char*> names = {});
// The shape that all inputs broadcast to; fails naming the inputs.
Shape broadcast_inputs(Types in, std::initializer_list<const char*> names);
inline TypeList same_type(const TensorType& t) { return {t}; }

// Letters for the axes of a shape: "a b c"; axes in `whole` get "!" (they must not be split).
std::string axis_names(int rank, const std::vector<int>& whole = {});
// The same, but `axis` has a name of its own: "a b x! d".
std::string axis_names_with(int rank, int axis, const std::string& own);
// "a x1! c -> a y1! c": axes for which shared(i) holds are the same on both sides, the others stay whole.
std::string factors_where(int rank, const std::function<bool(int)>& shared);
// Factors of a broadcasting elementwise operator: length-one axes print as "1".
std::string broadcast_factors(Types in, const Shape& out);

// Bytes of all inputs read once and all outputs written once.
double traffic(Types in, Types out);
inline Cost elementwise_cost(Types in, Types out, double flops_an_element) {
  return {flops_an_element * double(out[0].numel()), traffic(in, out)};
}

// Sums `dy` back to `shape` after a broadcast (the gradient of broadcasting).
Tensor unbroadcast(const Tensor& dy, const Shape& shape);

// The ONNX mapping of an operator without parameters, whose operands are ONNX's own.
OnnxMapping<NoParams> onnx_plain(std::string op_type, int since);

// A number as an integer or bool of this dtype, by the rules of cast: truncated, clamped, NaN → 0, bool is ≠ 0.
int64_t to_integer(double value, DType dtype);
// A parameter as a scalar of this dtype.
Tensor scalar_of(double value, DType dtype);
// Every element of a reference tensor becomes the parameter.
void fill(RefTensor& t, double value);

// Index arithmetic for references: the element of `in` (dense, broadcast) that element k of `out` reads.
class BroadcastIndex {
 public:
  BroadcastIndex(const Shape& in, const Shape& out);
  int64_t operator()(int64_t out_index) const;

 private:
  Shape out_, in_strides_;
};

// A shape seen as [outer, length, inner] around one axis.
struct AxisView {
  int64_t outer, length, inner;
  AxisView(const Shape& shape, int axis);
};

}  // namespace cairn::ops
