// SPDX-License-Identifier: Apache-2.0
// Order: calls that only lead to assigns (optimiser updates, running statistics) move to the earliest place
// after every other reader of the variables they replace, so that gradients die early and updates run in place.
//
//   before: %g1 = …; %g2 = …; %w1n = update(%w1, %g1); %w2n = update(%w2, %g2)
//   after:  %g1 = …; %w1n = update(%w1, %g1); %g2 = …; %w2n = update(%w2, %g2)
#pragma once
#include "passes/pipeline.h"

namespace cairn::passes {

PassReport schedule(Graph& graph);

}  // namespace cairn::passes
