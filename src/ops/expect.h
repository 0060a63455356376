// SPDX-License-Identifier: Apache-2.0
// What operators expect of their inputs and parameters, said in errors as name, got, expected.
#pragma once
#include <cairn/extend/op.h>
#include <fmt/format.h>

namespace cairn::ops {

[[noreturn]] inline void wrong_input(std::string_view name, const TensorType& got,
                                     std::string_view expected) {
  fail(ErrorCode::shape_mismatch,
       fmt::format("input {}: got {}, expected {}", name, to_string(got), expected));
}

[[noreturn]] inline void wrong_param(std::string_view name, std::string_view got,
                                     std::string_view expected) {
  fail(ErrorCode::invalid_argument,
       fmt::format("parameter {}: got {}, expected {}", name, got, expected));
}

inline void expect_picture(std::string_view name, const TensorType& got) {
  if (got.shape.rank() != 4) wrong_input(name, got, "four axes [n, c, h, w]");
}

// `why` completes "expected [3] ...", e.g. "as x has 3 channels".
inline void expect_shape(std::string_view name, const TensorType& got, const Shape& shape,
                         std::string_view why) {
  if (got.shape != shape) wrong_input(name, got, fmt::format("{} {}", to_string(shape), why));
}

// Scales, offsets and statistics of a norm have the dtype of x, or f32 where x is 16-bit.
inline void expect_norm_dtype(std::string_view name, const TensorType& got, DType x) {
  if (got.dtype == x || (got.dtype == DType::f32 && size_of(x) == 2)) return;
  fail(ErrorCode::dtype_unsupported,
       fmt::format("input {}: got {}, expected {}{}", name, to_string(got), cairn::name(x),
                   size_of(x) == 2 ? " or f32" : ""),
       "Convert it with cast(x, dtype)");
}

}  // namespace cairn::ops
