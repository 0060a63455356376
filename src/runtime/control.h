// SPDX-License-Identifier: Apache-2.0
// Control flow inside a plan: each branch is a plan of its own, chosen or repeated at run time.
#pragma once
#include "ir/graph.h"
#include "runtime/backend.h"

namespace cairn {

bool is_control(const OpDef& op);
// Dense operands. The branches inherit `options`.
std::unique_ptr<PreparedKernel> control_kernel(const Node& node, Types in, Types out, const CompileOptions& options);

}  // namespace cairn
