// SPDX-License-Identifier: Apache-2.0
// Rewrites that hold bit for bit (a sign of zero aside): x*1, x/1, x+0, x-0, neg neg x, identity, casts,
// reshapes and broadcasts to the same type, reshape of reshape, transpose of transpose.
//
//   before: %1: f32[6] = reshape{shape=[6]}(%0); %2: f32[3,2] = reshape{shape=[3,2]}(%1)
//   after:  %2: f32[3,2] = reshape{shape=[3,2]}(%0)
#pragma once
#include "passes/pipeline.h"

namespace cairn::passes {

PassReport simplify(Graph& graph);

}  // namespace cairn::passes
