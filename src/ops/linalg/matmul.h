// SPDX-License-Identifier: Apache-2.0
// Parameters of the matrix product, for kernels and passes.
#pragma once
#include <cairn/extend/params.h>

namespace cairn::ops {

// matmul(a, b) → y     a [..., m, k], b [..., k, n]; transposed: the last two axes are the other way round
struct MatmulParams {
  bool transpose_a = false, transpose_b = false;
  static constexpr auto fields =
      describe(field("transpose_a", &MatmulParams::transpose_a), field("transpose_b", &MatmulParams::transpose_b));
};

}  // namespace cairn::ops
