// SPDX-License-Identifier: Apache-2.0
// Dropout, a composition: in training each element is 0 with probability p, else x / (1 − p).
#include <cairn/ops.h>
#include <fmt/format.h>

#include "ops/context.h"

namespace cairn {

Tensor dropout(const Arg& x, double p) {
  if (!(p >= 0 && p <= 1))
    fail(ErrorCode::invalid_argument,
         fmt::format("dropout: parameter p: got {}, expected 0 … 1", p));
  const Tensor t = x.tensor();
  if (!is_training() || p == 0) return t;
  const Arg site(t, x.site().file, x.site().line);
  if (p == 1) return mul(site, 0);
  return select(random_uniform(t.shape()) >= p, mul(site, 1 / (1 - p)), 0);
}

}  // namespace cairn
