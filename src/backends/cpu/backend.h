// SPDX-License-Identifier: Apache-2.0
// Launch → bytes in memory: which kernels the CPU offers for an operator, and copies between
// layouts.
//
// A kernel is one file beside its operator's name (nn/conv.cpp, linalg/matmul.cpp) and one line in
// catalog.inc. Activations travel as nChw8c (nChw16c with AVX-512) wherever channels divide by the
// block, so that neighbours need no reorder; everything else is dense. What no kernel takes, the
// reference runs.
#pragma once
#include "runtime/backend.h"

namespace cairn::cpu {

#define CAIRN_KERNEL(name) extern const Kernel name##_kernel;
#include "backends/cpu/catalog.inc"
#undef CAIRN_KERNEL

// True when an operand or result has no elements; libraries differ on these, so kernels handle them
// apart.
bool any_empty(const KernelRequest& request);
// Sets all outputs to zero: what a convolution or product over nothing gives.
std::unique_ptr<PreparedKernel> zeros(Types out);
// memcpy on all threads; nothing when both are the same memory.
void copy_bytes(void* to, const void* from, int64_t bytes);

}  // namespace cairn::cpu
