// SPDX-License-Identifier: Apache-2.0
// Winograd's convolution: what its users and tests must know beside the kernels themselves.
#pragma once
#include "runtime/backend.h"

namespace cairn::cpu::winograd {

// The code for AVX-512 has never run on such a machine: it is refused unless this is set in the
// environment. (CAIRN_ISA=avx2 takes that for AVX2.)
inline constexpr const char* kForceAvx512 = "CAIRN_WINOGRAD_AVX512";

// What the kernels offer, and also where they refuse because the direct way is faster.
OfferResult offer_anything(const KernelRequest& r);

}  // namespace cairn::cpu::winograd
