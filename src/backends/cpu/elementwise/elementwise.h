// SPDX-License-Identifier: Apache-2.0
// One kernel for every elementwise operator, and for several fused into one: a program for the
// strip interpreter.
#pragma once
#include <vector>

#include "runtime/backend.h"

namespace cairn::cpu {

// A kernel for each elementwise operator of the catalogue.
std::vector<const Kernel*> elementwise_kernels();

}  // namespace cairn::cpu
