// SPDX-License-Identifier: Apache-2.0
// Computes calls whose operands are all constants now instead of at each run.
//
//   before: constant %0: f32[] = {2.0}; constant %1: f32[] = {3.0}; %2: f32[] = mul(%0, %1)
//   after:  constant %2: f32[] = {6.0}
//
// Results larger than their operands and than kLargestFold elements stay calls, so that plans do not swell.
#pragma once
#include "passes/pipeline.h"

namespace cairn::passes {

PassReport fold_constants(Graph& graph);

}  // namespace cairn::passes
