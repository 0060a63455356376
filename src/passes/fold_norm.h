// SPDX-License-Identifier: Apache-2.0
// Inference: a batch norm with constant statistics after a convolution with constant weights becomes part
// of the convolution: w' = w g / sqrt(v + e), b' = (b - m) g / sqrt(v + e) + beta, computed in f64 once.
//
//   before: %1 = conv{…}(%x, %w); %2 = batch_norm_infer{…}(%1, %gamma, %beta, %mean, %variance)
//   after:  %2 = conv{…}(%x, %w2, %b2)
#pragma once
#include "passes/pipeline.h"

namespace cairn::passes {

PassReport fold_norm(Graph& graph);

}  // namespace cairn::passes
