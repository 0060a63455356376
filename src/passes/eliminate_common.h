// SPDX-License-Identifier: Apache-2.0
// Common subexpressions: of two calls with the same operator, parameters and operands one is enough. Random
// operators qualify too, since their numbers follow from their operands.
//
//   before: %1 = exp(%0); %2 = exp(%0); %3 = add(%1, %2)
//   after:  %1 = exp(%0); %3 = add(%1, %1)
#pragma once
#include "passes/pipeline.h"

namespace cairn::passes {

PassReport eliminate_common(Graph& graph);

}  // namespace cairn::passes
