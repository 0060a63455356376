// SPDX-License-Identifier: Apache-2.0
// operator → run now (eager) or record (trace). The eager half: finds a kernel, keeps it prepared
// for the next call of the same kind, runs it. The recording half is ir/trace.h.
#pragma once
#include "ops/interpreter.h"
#include "runtime/backend.h"

namespace cairn {

// How eager calls choose kernels on this thread; a trainer sets it for a deterministic run.
bool eager_deterministic();
void set_eager_deterministic(bool on);

}  // namespace cairn
