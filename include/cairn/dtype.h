// SPDX-License-Identifier: Apache-2.0
// Element types. 16-bit floats are storage types: arithmetic on them is done in f32.
#pragma once
#include <cairn/error.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace cairn {

enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };
inline constexpr std::array kAllDTypes{DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64,
                                       DType::i32, DType::i16, DType::i8,  DType::u8,   DType::boolean};

CAIRN_API std::string_view name(DType dtype);             // "f32", "bool", ...
CAIRN_API DType parse_dtype(std::string_view text);       // throws parse
constexpr size_t size_of(DType d) {                       // bytes of one element
  constexpr std::array<uint8_t, 10> sizes{8, 4, 2, 2, 8, 4, 2, 1, 1, 1};
  return sizes[size_t(d)];
}
constexpr bool is_float(DType d) { return d <= DType::bf16; }
constexpr bool is_integer(DType d) { return d >= DType::i64 && d <= DType::u8; }

// IEEE 754 binary16 and bfloat16 as bits; conversion from float rounds to nearest even.
struct Half { uint16_t bits; };
struct BFloat16 { uint16_t bits; };

inline float to_float(BFloat16 b) { return std::bit_cast<float>(uint32_t(b.bits) << 16); }
inline BFloat16 to_bfloat16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return {uint16_t((u >> 16) | 0x40)};  // keep NaN a NaN
  return {uint16_t((u + 0x7FFF + ((u >> 16) & 1)) >> 16)};
}
CAIRN_API float to_float(Half h);
CAIRN_API Half to_half(float f);

template <class T> struct DTypeOf;
template <> struct DTypeOf<double> { static constexpr DType value = DType::f64; };
template <> struct DTypeOf<float> { static constexpr DType value = DType::f32; };
template <> struct DTypeOf<Half> { static constexpr DType value = DType::f16; };
template <> struct DTypeOf<BFloat16> { static constexpr DType value = DType::bf16; };
template <> struct DTypeOf<int64_t> { static constexpr DType value = DType::i64; };
template <> struct DTypeOf<int32_t> { static constexpr DType value = DType::i32; };
template <> struct DTypeOf<int16_t> { static constexpr DType value = DType::i16; };
template <> struct DTypeOf<int8_t> { static constexpr DType value = DType::i8; };
template <> struct DTypeOf<uint8_t> { static constexpr DType value = DType::u8; };
template <> struct DTypeOf<bool> { static constexpr DType value = DType::boolean; };
template <class T> inline constexpr DType dtype_of = DTypeOf<T>::value;

// Calls f(T{}) with the C++ type of a dtype: visit_dtype(d, [&](auto tag) { using T = decltype(tag); … }).
template <class F>
decltype(auto) visit_dtype(DType d, F&& f) {
  switch (d) {
    case DType::f64: return f(double{});
    case DType::f32: return f(float{});
    case DType::f16: return f(Half{});
    case DType::bf16: return f(BFloat16{});
    case DType::i64: return f(int64_t{});
    case DType::i32: return f(int32_t{});
    case DType::i16: return f(int16_t{});
    case DType::i8: return f(int8_t{});
    case DType::u8: return f(uint8_t{});
    case DType::boolean: break;
  }
  return f(bool{});
}

}  // namespace cairn
