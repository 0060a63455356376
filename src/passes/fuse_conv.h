// SPDX-License-Identifier: Apache-2.0
// Inference: convolution, then an addition, then an activation become one kernel, which finishes each output
// while it is in registers.
//
//   before: %1 = conv{…}(%x, %w, %b); %2 = add(%1, %r); %3 = relu(%2)
//   after:  %3 = fused_conv{…, activation="relu", residual=true}(%x, %w, %b, %r)
#pragma once
#include "passes/pipeline.h"

namespace cairn::passes {

PassReport fuse_conv(Graph& graph);

}  // namespace cairn::passes
