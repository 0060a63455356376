// SPDX-License-Identifier: Apache-2.0
// Layers: modules of one operator each, with PyTorch's names and first values.
#include <cairn/nn.h>
#include <fmt/format.h>

#include <cmath>

#include "ops/context.h"

namespace cairn::nn {
namespace {

Tensor read_if(const Variable& v) { return v.defined() ? v.read() : Tensor(); }

// PyTorch's default for convolutions and linear layers: ±1/sqrt(fan in), for weight and bias alike.
Init within(double fan_in) {
  const double bound = 1 / std::sqrt(fan_in);
  return init::uniform(-bound, bound);
}

void expect_positive(const char* layer, const std::string& name,
                     std::initializer_list<int64_t> numbers) {
  for (int64_t n : numbers)
    if (n < 1)
      fail(ErrorCode::invalid_argument,
           fmt::format("{} {}: got the size {}, expected 1 or more", layer, name, n));
}

}  // namespace

Conv2d::Conv2d(Group* parent, std::string name, int64_t in, int64_t out, const Conv2dOptions& o)
    : Module(parent, std::move(name)), options_{o.stride.h,  o.stride.w,   o.padding.h,
                                                o.padding.w, o.dilation.h, o.dilation.w,
                                                o.groups} {
  expect_positive("conv2d", path(), {in, out, o.kernel.h, o.kernel.w, o.groups});
  if (in % o.groups || out % o.groups)
    fail(ErrorCode::invalid_argument,
         fmt::format(
             "conv2d {}: got {} → {} channels in {} groups, expected multiples of the groups",
             path(), in, out, o.groups));
  const Init plain = within(double(in / o.groups * o.kernel.h * o.kernel.w));
  weight =
      parameter("weight", {out, in / o.groups, o.kernel.h, o.kernel.w}, o.init ? o.init : plain);
  if (o.bias) bias = parameter("bias", {out}, plain);
}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight, read_if(bias), options_); }

Linear::Linear(Group* parent, std::string name, int64_t in, int64_t out, const LinearOptions& o)
    : Module(parent, std::move(name)) {
  expect_positive("linear", path(), {in, out});
  weight = parameter("weight", {out, in}, o.init ? o.init : within(double(in)));
  if (o.bias) bias = parameter("bias", {out}, o.bias_init ? o.bias_init : within(double(in)));
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, read_if(bias)); }

BatchNorm2d::BatchNorm2d(Group* parent, std::string name, int64_t channels,
                         const BatchNormOptions& options)
    : Module(parent, std::move(name)), options_(options) {
  expect_positive("batch_norm", path(), {channels});
  const TensorType type{InitScope::current().dtype, {channels}};
  weight = parameter("weight", {channels}, init::constant(1));
  bias = parameter("bias", {channels}, init::constant(0));
  running_mean = state("running_mean", type, 0);
  running_var = state("running_var", type, 1);
  num_batches_tracked = state("num_batches_tracked", {DType::i64, {}}, 0);
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  if (!is_training() || frozen())
    return batch_norm_infer(x, weight, bias, running_mean, running_var, options_.epsilon);
  const int64_t count = x.rank() < 2 || x.shape()[1] == 0 ? 0 : x.numel() / x.shape()[1];
  if (count == 1)
    fail(ErrorCode::shape_mismatch,
         fmt::format(
             "batch_norm {}: got one value per channel ({}) in training, expected two or more",
             path(), to_string(x.type())),
         "A batch of one picture has no statistics here: use a larger batch, or leave out a last "
         "batch of one");
  auto [y, mean, variance] = batch_norm_train(x, weight, bias, options_.epsilon);
  // running ← (1 − m) running + m batch, with the unbiased variance, as PyTorch does.
  const double m = options_.momentum,
               unbiased = m * double(count) / double(std::max<int64_t>(count - 1, 1));
  running_mean.assign(running_mean * (1 - m) + mean * m);
  running_var.assign(running_var * (1 - m) + variance * unbiased);
  num_batches_tracked.assign(num_batches_tracked + 1);
  return y;
}

LayerNorm::LayerNorm(Group* parent, std::string name, const Shape& shape, double epsilon)
    : Module(parent, std::move(name)), epsilon_(epsilon) {
  weight = parameter("weight", shape, init::constant(1));
  bias = parameter("bias", shape, init::constant(0));
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, weight, bias, epsilon_); }

Dropout::Dropout(Group* parent, std::string name, double p)
    : Module(parent, std::move(name)), p_(p) {
  if (!(p >= 0 && p < 1))
    fail(ErrorCode::invalid_argument,
         fmt::format("dropout {}: got p = {}, expected 0 ≤ p < 1", path(), p));
}

Tensor Dropout::forward(const Tensor& x) { return is_training() && p_ > 0 ? dropout(x, p_) : x; }

}  // namespace cairn::nn
