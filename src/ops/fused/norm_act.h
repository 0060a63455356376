// SPDX-License-Identifier: Apache-2.0
// Batch norm in training joined with what follows it: y = act(norm(x) + residual).
#pragma once
#include <cairn/extend/params.h>

namespace cairn::ops {

// batch_norm_act_train(x, gamma, beta[, residual]) → y, mean, variance (biased)
// batch_norm_act_grad(dy, y, x, gamma, mean, variance) → dx, dgamma, dbeta[, dresidual]
//   with act "relu" the mask is y > 0; with "none" y is not read.
// batch_norm_act_grad(dy, x, x, gamma, mean, variance, beta) → dx, dgamma, dbeta
//   with act "silu", which is made from x again instead of being kept, and takes no residual.
struct NormActParams {
  double epsilon = 1e-5;
  std::string activation = "none";  // "none", "relu" or "silu"
  bool residual = false;
  static constexpr auto fields = describe(field("epsilon", &NormActParams::epsilon),
                                          field("activation", &NormActParams::activation),
                                          field("residual", &NormActParams::residual));
};

}  // namespace cairn::ops
