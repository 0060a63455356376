// SPDX-License-Identifier: Apache-2.0
// What a convolution is, for kernels and passes. (trail: a call → operator + parameters)
//
//   conv(x, weight[, bias]) → y
//   conv_grad_input(dy, weight) → dx      (ONNX ConvTranspose)
//   conv_grad_weight(x, dy) → dweight
// x [n, c, h, w], weight [k, c/groups, r, s], bias [k], y [n, k, y, x].
#pragma once
#include "ops/nn/window.h"

namespace cairn::ops {

struct ConvParams {  // lists are [height, width]
  Shape stride{1, 1}, pad_before{0, 0}, pad_after{0, 0}, dilation{1, 1};
  int64_t groups = 1;
  static constexpr auto fields =
      describe(field("stride", &ConvParams::stride), field("pad_before", &ConvParams::pad_before),
               field("pad_after", &ConvParams::pad_after), field("dilation", &ConvParams::dilation),
               field("groups", &ConvParams::groups));
};
// The size that y does not tell: a stride leaves it open.
struct ConvGradInputParams : ConvParams {
  Shape size{1, 1};  // height and width of x
  static constexpr auto fields =
      std::tuple_cat(ConvParams::fields, describe(field("size", &ConvGradInputParams::size)));
};
struct ConvGradWeightParams : ConvParams {
  Shape kernel{1, 1};  // height and width of the weight
  static constexpr auto fields =
      std::tuple_cat(ConvParams::fields, describe(field("kernel", &ConvGradWeightParams::kernel)));
};

// The sizes of a convolution, whichever of its operators is asked.
struct ConvSizes {
  int64_t n, c, h, w, k, r, s, y, x, groups;
  WindowAxis vertical, horizontal;
  Shape input() const { return {n, c, h, w}; }
  Shape weight() const { return {k, c / groups, r, s}; }
  Shape output() const { return {n, k, y, x}; }
  double flops() const { return 2.0 * double(n * k * y * x) * double(c / groups * r * s); }
};
// Each checks its operands; throws with name, got and expected.
ConvSizes conv_sizes(const ConvParams& p, Types in);                        // x, weight[, bias]
ConvSizes conv_grad_input_sizes(const ConvGradInputParams& p, Types in);    // dy, weight
ConvSizes conv_grad_weight_sizes(const ConvGradWeightParams& p, Types in);  // x, dy

}  // namespace cairn::ops
