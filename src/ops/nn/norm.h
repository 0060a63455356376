// SPDX-License-Identifier: Apache-2.0
// Parameters of the normalisations, for kernels and passes.
//
//   batch_norm_train(x, gamma, beta) → y, mean, variance (biased)
//   batch_norm_grad(dy, x, gamma, mean, variance) → dx, dgamma, dbeta
//   batch_norm_infer(x, gamma, beta, mean, variance) → y
//   layer_norm(x, weight[, bias]) → y
//   layer_norm_grad(dy, x, weight) → dx, dweight, dbias
// Batch norm: x of rank ≥ 2, channels on axis 1, all else [c]; the gradient takes mean and variance
// of x. Layer norm: over the last weight.rank() axes. Scales, offsets and statistics have the dtype
// of x, or f32 when x is 16-bit.
#pragma once
#include <cairn/extend/params.h>

namespace cairn::ops {

struct NormParams {
  double epsilon = 1e-5;  // added to the variance
  static constexpr auto fields = describe(field("epsilon", &NormParams::epsilon));
};

}  // namespace cairn::ops
