// SPDX-License-Identifier: Apache-2.0
#include <cairn/dtype.h>

namespace cairn {
namespace {
constexpr std::array<std::string_view, 10> kNames{"f64", "f32", "f16", "bf16", "i64",
                                                  "i32", "i16", "i8",  "u8",   "bool"};
}

std::string_view name(DType dtype) { return kNames[size_t(dtype)]; }

DType parse_dtype(std::string_view text) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == text) return DType(i);
  fail(ErrorCode::parse, "dtype: got '" + std::string(text) + "'",
       "Expected one of f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool");
}

float to_float(Half h) {
  const uint32_t sign = uint32_t(h.bits & 0x8000) << 16, exponent = (h.bits >> 10) & 31;
  uint32_t mantissa = h.bits & 0x3FF;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float value = float(mantissa) * 0x1p-24f;  // zero or subnormal: exact
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

Half to_half(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f), magnitude = u & 0x7FFFFFFFu;
  const auto sign = uint16_t((u >> 16) & 0x8000);
  if (magnitude > 0x7F800000u) return {uint16_t(sign | 0x7E00)};        // NaN
  if (magnitude >= 0x477FF000u) return {uint16_t(sign | 0x7C00)};       // rounds to infinity
  if (magnitude < 0x38800000u) {                                        // subnormal half: let the FPU round
    const float scaled = std::bit_cast<float>(magnitude) + 0.5f;        // ulp of [0.5, 1) is 2^-24
    return {uint16_t(sign | (std::bit_cast<uint32_t>(scaled) - 0x3F000000u))};
  }
  const uint32_t rounded = magnitude + 0xFFF + ((magnitude >> 13) & 1);
  return {uint16_t(sign | ((rounded - 0x38000000u) >> 13))};
}

}  // namespace cairn
