// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A number depends on (key, counter) alone, so never on threads, order or ranks.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace cairn {

// One Philox-4x32-10 block: 128 random bits for a 64-bit key and a 128-bit counter.
inline std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  std::array<uint32_t, 4> c{uint32_t(counter_low), uint32_t(counter_low >> 32),
                            uint32_t(counter_high), uint32_t(counter_high >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
    c = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1, uint32_t(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// Mixes 64 bits (splitmix64 finaliser): for deriving keys, not for drawing numbers.
constexpr uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
constexpr uint64_t mix(uint64_t a, uint64_t b) { return mix(mix(a) ^ b); }
constexpr uint64_t hash(std::string_view text) {  // FNV-1a, then mixed
  uint64_t h = 0xCBF29CE484222325ull;
  for (char c : text) h = (h ^ uint8_t(c)) * 0x100000001B3ull;
  return mix(h);
}

// A uniform number in [0, 1) from 24 random bits, exact in float.
constexpr float uniform_float(uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }

// A small sequential generator over one (key, stream): for shuffles, augmentations, generators.
class Random {
 public:
  explicit Random(uint64_t key, uint64_t stream = 0) : key_(key), stream_(stream) {}
  uint32_t next() {
    if (used_ == 4) block_ = philox(key_, counter_++, stream_), used_ = 0;
    return block_[used_++];
  }
  double uniform() {  // [0, 1), 53 bits
    const uint64_t high = next() >> 5, low = next() >> 6;
    return double(high * 67108864 + low) * 0x1p-53;
  }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // 0 … n-1, without modulo bias (Lemire).
  uint32_t below(uint32_t n) {
    uint64_t m = uint64_t(next()) * n;
    if (uint32_t(m) < n)
      for (const uint32_t floor = -n % n; uint32_t(m) < floor;) m = uint64_t(next()) * n;
    return uint32_t(m >> 32);
  }
  double normal();  // mean 0, variance 1 (Box–Muller, one of the pair)
  template <class Range>
  void shuffle(Range& items) {  // Fisher–Yates
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(uint32_t(i))]);
  }

 private:
  uint64_t key_, stream_, counter_ = 0;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace cairn
