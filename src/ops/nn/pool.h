// SPDX-License-Identifier: Apache-2.0
// Parameters and sizes of the pooling operators, for kernels and passes.
//
//   max_pool(x) → y, indices
//   max_pool_grad(dy, indices) → dx
//   avg_pool(x) → y
//   avg_pool_grad(dy) → dx
// indices (i32): h · width + w within the plane of x; the first of equals, and NaN wins.
#pragma once
#include "ops/nn/window.h"

namespace cairn::ops {

// Lists are [height, width]. ceil_mode: a last window may hang over the end.
struct MaxPoolParams {
  Shape kernel{2, 2}, stride{2, 2}, pad_before{0, 0}, pad_after{0, 0}, dilation{1, 1};
  bool ceil_mode = false;
  static constexpr auto fields = describe(
      field("kernel", &MaxPoolParams::kernel), field("stride", &MaxPoolParams::stride),
      field("pad_before", &MaxPoolParams::pad_before),
      field("pad_after", &MaxPoolParams::pad_after), field("dilation", &MaxPoolParams::dilation),
      field("ceil_mode", &MaxPoolParams::ceil_mode));
};
struct MaxPoolGradParams {
  Shape size{1, 1};  // height and width of x
  static constexpr auto fields = describe(field("size", &MaxPoolGradParams::size));
};

struct AvgPoolParams {
  Shape kernel{2, 2}, stride{2, 2}, pad_before{0, 0}, pad_after{0, 0};
  bool ceil_mode = false;
  bool count_padding = true;  // does the divisor count padding? (never what hangs over beyond it)
  static constexpr auto fields = describe(
      field("kernel", &AvgPoolParams::kernel), field("stride", &AvgPoolParams::stride),
      field("pad_before", &AvgPoolParams::pad_before),
      field("pad_after", &AvgPoolParams::pad_after), field("ceil_mode", &AvgPoolParams::ceil_mode),
      field("count_padding", &AvgPoolParams::count_padding));
};
struct AvgPoolGradParams : AvgPoolParams {
  Shape size{1, 1};  // height and width of x
  static constexpr auto fields =
      std::tuple_cat(AvgPoolParams::fields, describe(field("size", &AvgPoolGradParams::size)));
};

struct PoolSizes {
  int64_t n, c, h, w, y, x;
  WindowAxis vertical, horizontal;
  Shape input() const { return {n, c, h, w}; }
  Shape output() const { return {n, c, y, x}; }
  double taps() const {
    return double(n * c * y * x) * double(vertical.kernel * horizontal.kernel);
  }
};
// Each checks parameters and operands; throws with name, got and expected.
PoolSizes max_pool_sizes(const MaxPoolParams& p, const TensorType& x);
PoolSizes avg_pool_sizes(const AvgPoolParams& p, const TensorType& x);
PoolSizes avg_pool_grad_sizes(const AvgPoolGradParams& p, const TensorType& dy);
// How many positions of one axis an average over window `i` divides by; the divisor is the product
// of both axes.
int64_t avg_pool_count(const WindowAxis& axis, int64_t i, bool count_padding);

// Fails for an index that is no pixel of a plane.
[[noreturn]] void wrong_place(int64_t place, int64_t pixels);

}  // namespace cairn::ops
