// SPDX-License-Identifier: Apache-2.0
// Elementwise calls on one shape that feed each other become one call of fused_elementwise, which passes
// over memory once. The arithmetic, and so every bit of the result, is that of the separate calls.
//
//   before: %2 = mul(%0, %lr); %3 = sub(%w, %2)
//   after:  %3 = fused_elementwise{program="t0 = mul(i0, i1); t1 = sub(i2, t0) -> t1"}(%0, %lr, %w)
#pragma once
#include "passes/pipeline.h"

namespace cairn::passes {

PassReport fuse_elementwise(Graph& graph);

}  // namespace cairn::passes
