// SPDX-License-Identifier: Apache-2.0
// The operators as functions on tensors. They run now, or are recorded when a trace is on (cairn/graph.h).
// Shapes are NCHW for pictures. Binary operators broadcast as NumPy does; both sides must have one dtype, but
// a plain number takes the dtype of the other side. Every error names the operator, the argument, what it
// got and expected, and the caller's line.
#pragma once
#include <cairn/extend/op.h>
#include <cairn/variable.h>

namespace cairn {

// An argument that remembers where it was written, so that errors can name the line. Made implicitly from
// tensors, variables and numbers.
class CAIRN_API Arg {
 public:
  Arg(const Tensor& t, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : tensor_(t), site_{file, line} {}
  Arg(const Variable& v, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : tensor_(v.read()), site_{file, line} {}
  template <class T>
    requires std::is_arithmetic_v<T>
  Arg(T number, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : number_(double(number)), site_{file, line} {}

  bool is_number() const { return !tensor_.defined() && number_.has_value(); }
  // The tensor; a number becomes a scalar of `dtype`.
  Tensor tensor(DType dtype = DType::f32) const { return is_number() ? Tensor::scalar(*number_, dtype) : tensor_; }
  CallSite site() const { return site_; }

 private:
  Tensor tensor_;
  std::optional<double> number_;
  CallSite site_;
};
// Both sides as tensors of one dtype, numbers following the other side.
CAIRN_API std::pair<Tensor, Tensor> matched(const Arg& a, const Arg& b);

// Axes to reduce: given as {0, 2}; negative counts from the end; `all_axes` for every one.
using Axes = std::vector<int64_t>;
enum class Keep : bool { no, yes };  // keep reduced axes with length 1?

// --- arithmetic (any number dtype) ---
CAIRN_API Tensor add(const Arg& a, const Arg& b);
CAIRN_API Tensor sub(const Arg& a, const Arg& b);
CAIRN_API Tensor mul(const Arg& a, const Arg& b);
CAIRN_API Tensor div(const Arg& a, const Arg& b);  // integers: towards zero; by 0 gives 0
CAIRN_API Tensor pow(const Arg& a, const Arg& b);  // floats
CAIRN_API Tensor maximum(const Arg& a, const Arg& b);  // NaN wins
CAIRN_API Tensor minimum(const Arg& a, const Arg& b);
inline Tensor operator+(const Arg& a, const Arg& b) { return add(a, b); }
inline Tensor operator-(const Arg& a, const Arg& b) { return sub(a, b); }
inline Tensor operator*(const Arg& a, const Arg& b) { return mul(a, b); }
inline Tensor operator/(const Arg& a, const Arg& b) { return div(a, b); }
// --- comparisons (any dtype → bool) and logic (bool → bool) ---
CAIRN_API Tensor equal(const Arg& a, const Arg& b);
CAIRN_API Tensor not_equal(const Arg& a, const Arg& b);
CAIRN_API Tensor less(const Arg& a, const Arg& b);
CAIRN_API Tensor less_equal(const Arg& a, const Arg& b);
CAIRN_API Tensor greater(const Arg& a, const Arg& b);
CAIRN_API Tensor greater_equal(const Arg& a, const Arg& b);
inline Tensor operator<(const Arg& a, const Arg& b) { return less(a, b); }
inline Tensor operator<=(const Arg& a, const Arg& b) { return less_equal(a, b); }
inline Tensor operator>(const Arg& a, const Arg& b) { return greater(a, b); }
inline Tensor operator>=(const Arg& a, const Arg& b) { return greater_equal(a, b); }
CAIRN_API Tensor logical_and(const Arg& a, const Arg& b);
CAIRN_API Tensor logical_or(const Arg& a, const Arg& b);
CAIRN_API Tensor logical_not(const Arg& x);
// --- elementwise, one operand ---
CAIRN_API Tensor neg(const Arg& x);
inline Tensor operator-(const Arg& x) { return neg(x); }
CAIRN_API Tensor abs(const Arg& x);
CAIRN_API Tensor sign(const Arg& x);
CAIRN_API Tensor exp(const Arg& x);
CAIRN_API Tensor log(const Arg& x);
CAIRN_API Tensor sqrt(const Arg& x);
CAIRN_API Tensor rsqrt(const Arg& x);       // 1 / sqrt(x)
CAIRN_API Tensor reciprocal(const Arg& x);  // 1 / x
CAIRN_API Tensor square(const Arg& x);
CAIRN_API Tensor sin(const Arg& x);
CAIRN_API Tensor cos(const Arg& x);
CAIRN_API Tensor tanh(const Arg& x);
CAIRN_API Tensor erf(const Arg& x);
CAIRN_API Tensor floor(const Arg& x);
CAIRN_API Tensor ceil(const Arg& x);
CAIRN_API Tensor round(const Arg& x);  // halves to even
CAIRN_API Tensor sigmoid(const Arg& x);
CAIRN_API Tensor relu(const Arg& x);
CAIRN_API Tensor leaky_relu(const Arg& x, double slope = 0.01);
CAIRN_API Tensor elu(const Arg& x, double alpha = 1);
CAIRN_API Tensor gelu(const Arg& x);  // x Φ(x), exact
CAIRN_API Tensor silu(const Arg& x);  // x σ(x)
CAIRN_API Tensor softplus(const Arg& x);  // log(1 + e^x), safe for large |x|
CAIRN_API Tensor hardswish(const Arg& x);
CAIRN_API Tensor hardsigmoid(const Arg& x);  // clamp(x/6 + 1/2, 0, 1)
CAIRN_API Tensor clamp(const Arg& x, double low, double high);
inline Tensor relu6(const Arg& x) { return clamp(x, 0, 6); }
CAIRN_API Tensor cast(const Arg& x, DType dtype);  // float → integer truncates and clamps, NaN → 0
CAIRN_API Tensor identity(const Arg& x);
CAIRN_API Tensor stop_gradient(const Arg& x);
CAIRN_API Tensor select(const Arg& condition, const Arg& a, const Arg& b);  // condition (bool) ? a : b, broadcast
// --- reductions ---
inline const Axes all_axes{};
CAIRN_API Tensor sum(const Arg& x, const Axes& axes = all_axes, Keep keep = Keep::no);
CAIRN_API Tensor mean(const Arg& x, const Axes& axes = all_axes, Keep keep = Keep::no);
CAIRN_API Tensor max(const Arg& x, const Axes& axes = all_axes, Keep keep = Keep::no);
CAIRN_API Tensor min(const Arg& x, const Axes& axes = all_axes, Keep keep = Keep::no);
CAIRN_API Tensor prod(const Arg& x, const Axes& axes = all_axes, Keep keep = Keep::no);
CAIRN_API Tensor argmax(const Arg& x, int64_t axis = -1, Keep keep = Keep::no);  // i64; the first of equals
CAIRN_API Tensor argmin(const Arg& x, int64_t axis = -1, Keep keep = Keep::no);
CAIRN_API Tensor softmax(const Arg& x, int64_t axis = -1);
CAIRN_API Tensor log_softmax(const Arg& x, int64_t axis = -1);
// --- linear algebra ---
// [..., m, k] × [..., k, n] → [..., m, n]; leading axes broadcast.
CAIRN_API Tensor matmul(const Arg& a, const Arg& b, bool transpose_a = false, bool transpose_b = false);
// x [..., in], weight [out, in], bias [out] or undefined → [..., out].
CAIRN_API Tensor linear(const Arg& x, const Arg& weight, const Tensor& bias = {});
// --- neural networks ---
struct ConvOptions {
  int64_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1, groups = 1;
};
// x [n, c, h, w], weight [k, c/groups, r, s], bias [k] or undefined → [n, k, y, x].
// y = (h + 2 pad − dilation (r − 1) − 1) / stride + 1.
CAIRN_API Tensor conv2d(const Arg& x, const Arg& weight, const Tensor& bias = {}, const ConvOptions& options = {});
struct PoolOptions {
  int64_t kernel_h = 2, kernel_w = 2, stride_h = 2, stride_w = 2, pad_h = 0, pad_w = 0;
  bool ceil_mode = false, count_padding = true;  // count_padding: average pooling divides by the whole window
};
CAIRN_API Tensor max_pool2d(const Arg& x, const PoolOptions& options);
CAIRN_API Tensor avg_pool2d(const Arg& x, const PoolOptions& options);
// Normalises with the statistics of the batch (biased variance) over all axes but 1.
struct BatchNormResult {
  Tensor y, mean, variance;  // variance biased; [c]
};
CAIRN_API BatchNormResult batch_norm_train(const Arg& x, const Arg& gamma, const Arg& beta, double epsilon = 1e-5);
CAIRN_API Tensor batch_norm_infer(const Arg& x, const Arg& gamma, const Arg& beta, const Arg& mean,
                                  const Arg& variance, double epsilon = 1e-5);
// Over the last `weight.rank()` axes.
CAIRN_API Tensor layer_norm(const Arg& x, const Arg& weight, const Arg& bias, double epsilon = 1e-5);
CAIRN_API Tensor dropout(const Arg& x, double p);  // in training: zeroes with probability p, scales by 1/(1−p)
// --- losses ---
// logits [n, classes, ...], labels i64 [n, ...] → the loss of each record [n, ...]. `smoothing` ε: targets are
// 1 − ε + ε/classes for the label, ε/classes elsewhere. A record with label −100 is ignored; any other label
// outside 0 … classes−1 is an error when the operator runs, which names the record.
CAIRN_API Tensor cross_entropy_each(const Arg& logits, const Arg& labels, double smoothing = 0);
// The mean; with class_weights [classes]: Σ w[y] l / Σ w[y], as PyTorch defines it (smoothing included).
CAIRN_API Tensor cross_entropy(const Arg& logits, const Arg& labels, double smoothing = 0,
                               const Tensor& class_weights = {});
// --- shape ---
CAIRN_API Tensor reshape(const Arg& x, const Shape& shape);  // one −1 is inferred
CAIRN_API Tensor flatten(const Arg& x, int64_t from_axis = 1);
CAIRN_API Tensor squeeze(const Arg& x, int64_t axis);
CAIRN_API Tensor unsqueeze(const Arg& x, int64_t axis);
CAIRN_API Tensor transpose(const Arg& x, const Axes& order);  // out axis i is in axis order[i]
CAIRN_API Tensor transpose(const Arg& x);                     // the last two
CAIRN_API Tensor broadcast_to(const Arg& x, const Shape& shape);
CAIRN_API Tensor concat(const std::vector<Tensor>& xs, int64_t axis, CallSite site = {__builtin_FILE(), __builtin_LINE()});
CAIRN_API Tensor stack(const std::vector<Tensor>& xs, int64_t axis, CallSite site = {__builtin_FILE(), __builtin_LINE()});
CAIRN_API std::vector<Tensor> split(const Arg& x, const std::vector<int64_t>& lengths, int64_t axis);
// Python slices on every axis: begin and end may count from the end and are clamped; steps > 0 or < 0.
CAIRN_API Tensor slice(const Arg& x, const std::vector<int64_t>& begin, const std::vector<int64_t>& end,
                       const std::vector<int64_t>& step = {});
CAIRN_API Tensor pad(const Arg& x, const std::vector<int64_t>& before, const std::vector<int64_t>& after,
                     double value = 0);
CAIRN_API Tensor flip(const Arg& x, const Axes& axes);
// --- index ---
CAIRN_API Tensor gather(const Arg& x, const Arg& indices, int64_t axis = 0);  // as NumPy take; out of range: error in eager
CAIRN_API Tensor gather_elements(const Arg& x, const Arg& indices, int64_t axis);
// zeros(shape) with values [indices.shape, …] added at the given rows of `axis`.
CAIRN_API Tensor scatter_add(const Arg& values, const Arg& indices, const Shape& shape, int64_t axis = 0);
CAIRN_API Tensor scatter_elements_add(const Arg& values, const Arg& indices, const Shape& shape, int64_t axis);
CAIRN_API Tensor one_hot(const Arg& indices, int64_t classes, DType dtype = DType::f32);  // new last axis
CAIRN_API Tensor iota(const Shape& shape, int64_t axis, DType dtype);  // 0, 1, 2 … along `axis`
CAIRN_API Tensor full(const Shape& shape, double value, DType dtype = DType::f32);
CAIRN_API Tensor zeros_like(const Arg& x);
CAIRN_API Tensor ones_like(const Arg& x);
// --- random (Philox; keyed by seed, step, module path, call ordinal and element index) ---
CAIRN_API Tensor random_uniform(const Shape& shape, double low = 0, double high = 1, DType dtype = DType::f32);
CAIRN_API Tensor random_normal(const Shape& shape, double mean = 0, double deviation = 1, DType dtype = DType::f32);
// --- image ---
enum class ResizeMode { nearest, bilinear };
// x [n, c, h, w] → [n, c, height, width], half-pixel centres, no antialias (as PyTorch interpolate).
CAIRN_API Tensor resize2d(const Arg& x, int64_t height, int64_t width, ResizeMode mode = ResizeMode::bilinear);
// --- control flow ---
// Runs one branch; under a trace both are recorded and the choice is made at run time. The branches take
// nothing (they capture) and give the same number of tensors of the same types.
CAIRN_API std::vector<Tensor> cond(const Arg& condition, const std::function<std::vector<Tensor>()>& then_branch,
                                   const std::function<std::vector<Tensor>()>& else_branch);
// Repeats body while condition(state) is true. Forward only.
CAIRN_API std::vector<Tensor> while_loop(const std::function<Tensor(const std::vector<Tensor>&)>& condition,
                                         const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body,
                                         std::vector<Tensor> state);

// Every operator that this build has, by name; null when unknown.
CAIRN_API const OpDef* find_op(std::string_view name);
CAIRN_API std::span<const OpDef* const> all_ops();
// Adds a user's operator to find_op and all_ops (text forms then parse it). The definition must outlive the
// program; a name that is taken is refused.
CAIRN_API void register_op(const OpDef& op);

}  // namespace cairn
