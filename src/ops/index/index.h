// SPDX-License-Identifier: Apache-2.0
// What the operators that take indices share: an index may count from the end; out of range is an
// error here, in the reference and in eager kernels (compiled plans leave the value alone: reads
// give 0, writes nothing).
#pragma once
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn::ops {

inline int64_t checked_index(int64_t index, int64_t length) {
  if (index < -length || index >= length)
    fail(ErrorCode::invalid_argument,
         fmt::format("input indices: got {}, expected {} … {} for an axis of length {}", index,
                     -length, length - 1, length));
  return index < 0 ? index + length : index;
}

inline int64_t checked_length(int64_t length) {
  if (length < 0) wrong_param("length", std::to_string(length), "0 or more");
  return length;
}

inline void accumulate(RefTensor& to, int64_t at, const RefTensor& from, int64_t k) {
  if (to.is_float())
    to.f[size_t(at)] += from.f[size_t(k)];
  else
    to.i[size_t(at)] = int64_t(uint64_t(to.i[size_t(at)]) + uint64_t(from.i[size_t(k)]));
}

[[noreturn]] inline void wrong_scatter_shape(std::string_view op, const Shape& got,
                                             const TensorType& expected) {
  fail(ErrorCode::shape_mismatch,
       fmt::format("{}: shape: got {}, expected {} for these values and indices", op,
                   to_string(got), to_string(expected.shape)));
}

}  // namespace cairn::ops
