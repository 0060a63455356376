// SPDX-License-Identifier: Apache-2.0
// What reductions share: their parameters, the shapes they give, and the way back from a result to
// its input.
#pragma once
#include "ops/helpers.h"

namespace cairn::ops {

struct ReduceParams {
  std::vector<int64_t> axes;  // empty: all
  bool keep = false;          // keep them with length 1
  static constexpr auto fields =
      describe(field("axes", &ReduceParams::axes), field("keep", &ReduceParams::keep));
};

// For each axis: is it reduced? Fails when an axis is out of range or named twice.
std::array<bool, kMaxRank> reduced_axes(const std::vector<int64_t>& axes, int rank);
Shape reduced_shape(const Shape& x, const std::array<bool, kMaxRank>& reduced, bool keep);
// A result with its reduced axes put back as length one.
Tensor with_kept_axes(const Tensor& t, const ReduceParams& p, const Shape& x);

}  // namespace cairn::ops
