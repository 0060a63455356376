// SPDX-License-Identifier: Apache-2.0
// Walking strided tensors: element access by dtype, and a loop over one or more strided operands.
#pragma once
#include <cairn/tensor.h>

#include <algorithm>

namespace cairn {

// One element as double or int64; bool reads as 0 or 1.
template <class To, class T>
To load_as(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return static_cast<To>(to_float(value));
  else
    return static_cast<To>(value);
}
template <class T, class From>
T store_as(From value) {
  if constexpr (std::is_same_v<T, Half>)
    return to_half(static_cast<float>(value));
  else if constexpr (std::is_same_v<T, BFloat16>)
    return to_bfloat16(static_cast<float>(value));
  else if constexpr (std::is_same_v<T, bool>)
    return value != 0;
  else if constexpr (std::is_integral_v<T> && std::is_integral_v<From>)
    return static_cast<T>(value);  // wraps, as arithmetic in the type itself does
  else
    return static_cast<T>(value);
}

// Float to integer as ONNX Cast leaves it open: truncated, clamped to the range, NaN becomes 0.
template <class T>
T saturate(double value) {
  if (!(value == value)) return T(0);
  constexpr double low = double(std::numeric_limits<T>::min()), high = double(std::numeric_limits<T>::max());
  if (value <= low) return std::numeric_limits<T>::min();
  if (value >= high) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

// Calls body(row_offset, …) for each innermost row of `shape`: offsets in elements, one an operand.
// The caller loops over the last axis itself (its strides are the last of each operand).
template <size_t N, class Body>
void for_each_row(const Shape& shape, const std::array<Shape, N>& strides, Body&& body) {
  if (shape.numel() == 0) return;
  std::array<int64_t, N> offset{};
  if (shape.rank() <= 1) return body(offset);
  Shape index = Shape::filled(shape.rank() - 1, 0);
  for (;;) {
    body(offset);
    int axis = shape.rank() - 2;
    for (; axis >= 0; --axis) {
      for (size_t k = 0; k < N; ++k) offset[k] += strides[k][axis];
      if (++index[axis] < shape[axis]) break;
      for (size_t k = 0; k < N; ++k) offset[k] -= strides[k][axis] * shape[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace cairn
