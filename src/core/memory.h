// SPDX-License-Identifier: Apache-2.0
// How much memory there is to plan with.
#pragma once
#include <cstddef>

namespace cairn {

// Bytes of the machine, or of the container (cgroup v2) where that has less.
size_t machine_memory();

// The limit on tensors in force: as set by set_memory_limit(), else machine_memory().
size_t memory_limit();

}  // namespace cairn
