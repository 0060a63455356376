// SPDX-License-Identifier: Apache-2.0
// operator → run now (eager) or record (trace). The eager half: finds a kernel, keeps it prepared
// for the next call of the same kind, runs it. The recording half is ir/trace.h.
#pragma once
#include "ops/interpreter.h"
#include "runtime/backend.h"

namespace cairn {

// How eager calls choose kernels on this thread (see CompileOptions); a trainer sets it for a run.
struct EagerRules {
  bool deterministic = false, exact = false;
  bool operator==(const EagerRules&) const = default;
};
EagerRules eager_rules();
void set_eager_rules(EagerRules rules);

}  // namespace cairn
