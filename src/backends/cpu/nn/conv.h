// SPDX-License-Identifier: Apache-2.0
// What a convolution kernel is asked for, read from the request.
#pragma once
#include "ops/fused/conv.h"
#include "runtime/backend.h"

namespace cairn::cpu {

enum class Direction { forward, input_gradient, weight_gradient };

// A request, whichever of the four operators it is for.
struct ConvProblem {
  Direction direction;
  ops::ConvSizes z;
  bool bias = false;
  int residual = -1;  // input
  std::optional<ops::FusedCall> activation = {};
  bool fused = false;
};
ConvProblem conv_problem(const KernelRequest& r);

}  // namespace cairn::cpu
