// SPDX-License-Identifier: Apache-2.0
// The numbers that random operators give: element k of a stream depends on (seed, stream, step, k)
// alone.
#pragma once
#include <cairn/dtype.h>

#include <cmath>
#include <numbers>

#include "base/random.h"

namespace cairn::ops {

// One stream of numbers; cheap to copy, safe to share.
class Draw {
 public:
  Draw(int64_t seed, int64_t stream, int64_t step)
      : key_(mix(uint64_t(seed), uint64_t(stream))), step_(uint64_t(step)) {}

  // The four numbers of elements 4 q … 4 q + 3.
  std::array<uint32_t, 4> quad(int64_t q) const { return philox(key_, uint64_t(q), step_); }
  // In [0, 1), a multiple of 2^-digits (uniform_digits: what the dtype holds exactly).
  double uniform(int64_t k, int digits) const {
    return fraction(quad(k / 4)[size_t(k % 4)], digits);
  }
  static double fraction(uint32_t bits, int digits) {
    return double(bits >> (32 - digits)) / double(uint64_t(1) << digits);
  }
  // Mean 0, variance 1 (Box–Muller, the cosine of the pair).
  double normal(int64_t k) const {
    const auto bits = quad(k / 2);
    const auto half = size_t(k % 2) * 2;
    const double u = (double(bits[half] >> 8) + 1) * 0x1p-24,
                 angle = 2 * std::numbers::pi * fraction(bits[half + 1], 24);
    return std::sqrt(-2 * std::log(u)) * std::cos(angle);
  }

 private:
  uint64_t key_, step_;
};

// Bits that a uniform number of this dtype has: never rounded up to 1.
constexpr int uniform_digits(DType d) { return d == DType::f16 ? 11 : d == DType::bf16 ? 8 : 24; }

}  // namespace cairn::ops
