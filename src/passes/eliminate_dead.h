// SPDX-License-Identifier: Apache-2.0
// Drops calls whose results nobody reads, then constants and variables that nobody reads.
//
//   before: %1 = exp(%0); %2 = log(%0); output %2
//   after:  %2 = log(%0); output %2
#pragma once
#include "passes/pipeline.h"

namespace cairn::passes {

PassReport eliminate_dead(Graph& graph);

}  // namespace cairn::passes
