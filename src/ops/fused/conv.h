// SPDX-License-Identifier: Apache-2.0
// Convolution joined with what follows it, for inference: y = act(conv(x, weight) + bias +
// residual).
#pragma once
#include "ops/fused/program.h"
#include "ops/nn/conv.h"

namespace cairn::ops {

// fused_conv(x, weight[, bias][, residual]) → y
struct FusedConvParams : ConvParams {
  bool bias = false, residual = false;
  // An elementwise operator of one operand, as its call prints: "relu", "clamp{low=0.0, high=6.0}";
  // or "none".
  std::string activation = "none";
  static constexpr auto fields = std::tuple_cat(
      ConvParams::fields,
      describe(field("bias", &FusedConvParams::bias), field("residual", &FusedConvParams::residual),
               field("activation", &FusedConvParams::activation)));
};
// The activation read back; nullopt for "none". Throws invalid_argument.
std::optional<FusedCall> activation_of(const FusedConvParams& p);
// Where the residual stands among the inputs; −1: there is none.
inline int residual_input(const FusedConvParams& p) { return p.residual ? 2 + p.bias : -1; }

}  // namespace cairn::ops
