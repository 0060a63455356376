// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace cairn {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;  // bit-reversed

// tables[k][b]: the CRC of byte b followed by k zero bytes, so that eight bytes go in one step.
constexpr auto tables = [] {
  std::array<std::array<uint32_t, 256>, 8> t{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
    t[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t b = 0; b < 256; ++b) t[k][b] = (t[k - 1][b] >> 8) ^ t[0][t[k - 1][b] & 255];
  return t;
}();

uint64_t load64(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, 8);
  return word;
}

#if defined(__x86_64__)
// One instruction takes eight bytes but answers three cycles later, so three streams run abreast;
// each stream's CRC is moved past the bytes behind it by multiplying with x^(8·length), tabulated.
constexpr size_t kStream = 1024;

// shift[k][b]: what byte b at place k of a CRC becomes after kStream zero bytes.
constexpr auto shift = [] {
  std::array<std::array<uint32_t, 256>, 4> t{};
  std::array<uint32_t, 32> single{};  // the same for each single bit; the rest is linear
  for (uint32_t bit = 0; bit < 32; ++bit) {
    uint32_t crc = 1u << bit;
    for (size_t i = 0; i < kStream; ++i) crc = (crc >> 8) ^ tables[0][crc & 255];
    single[bit] = crc;
  }
  for (uint32_t k = 0; k < 4; ++k)
    for (uint32_t b = 0; b < 256; ++b)
      for (uint32_t bit = 0; bit < 8; ++bit)
        if (b >> bit & 1) t[k][b] ^= single[8 * k + bit];
  return t;
}();

uint32_t shifted(uint32_t crc) {
  return shift[0][crc & 255] ^ shift[1][crc >> 8 & 255] ^ shift[2][crc >> 16 & 255] ^
         shift[3][crc >> 24];
}

__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(std::string_view bytes, uint32_t so_far) {
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint64_t crc = ~so_far;
  for (; left >= 3 * kStream; at += 3 * kStream, left -= 3 * kStream) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < kStream; i += 8) {
      crc = _mm_crc32_u64(crc, load64(at + i));
      second = _mm_crc32_u64(second, load64(at + kStream + i));
      third = _mm_crc32_u64(third, load64(at + 2 * kStream + i));
    }
    crc = shifted(shifted(uint32_t(crc)) ^ uint32_t(second)) ^ uint32_t(third);
  }
  for (; left >= 8; at += 8, left -= 8) crc = _mm_crc32_u64(crc, load64(at));
  for (; left > 0; ++at, --left) crc = _mm_crc32_u8(uint32_t(crc), uint8_t(*at));
  return ~uint32_t(crc);
}
#endif

}  // namespace

uint32_t detail::crc32c_table(std::string_view bytes, uint32_t so_far) {
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint32_t crc = ~so_far;
  if constexpr (std::endian::native == std::endian::little)
    for (; left >= 8; at += 8, left -= 8) {
      const uint64_t word = load64(at) ^ crc;
      crc = 0;
      for (size_t k = 0; k < 8; ++k) crc ^= tables[7 - k][word >> (8 * k) & 255];
    }
  for (; left > 0; ++at, --left) crc = (crc >> 8) ^ tables[0][(crc ^ uint8_t(*at)) & 255];
  return ~crc;
}

uint32_t crc32c(std::string_view bytes, uint32_t so_far) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return crc32c_sse42(bytes, so_far);
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint32_t crc = ~so_far;
  for (; left >= 8; at += 8, left -= 8) crc = __crc32cd(crc, load64(at));
  for (; left > 0; ++at, --left) crc = __crc32cb(crc, uint8_t(*at));
  return ~crc;
#endif
  return detail::crc32c_table(bytes, so_far);
}

}  // namespace cairn
