// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/simd.h"

#include "backends/cpu/isa.h"
#include "hwy/highway.h"

namespace cairn::cpu {

void limit_highway() {
  constexpr int64_t avx512 = HWY_AVX3 | HWY_AVX3_DL;
  hwy::DisableTargets(isa() == Isa::avx512 ? 0 : isa() == Isa::avx2 ? avx512 : avx512 | HWY_AVX2);
}

}  // namespace cairn::cpu
