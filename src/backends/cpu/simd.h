// SPDX-License-Identifier: Apache-2.0
// Highway, which our own kernels are written with, kept to the instruction set that isa() says.
#pragma once

namespace cairn::cpu {

// Applies isa() to Highway's choice, which then holds for every HWY_DYNAMIC_DISPATCH. May be called
// again.
void limit_highway();

}  // namespace cairn::cpu
