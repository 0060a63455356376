// SPDX-License-Identifier: Apache-2.0
// Parameters of softmax and log_softmax, for kernels and passes.
#pragma once
#include <cairn/extend/params.h>

namespace cairn::ops {

struct SoftmaxParams {
  int64_t axis = -1;
  static constexpr auto fields = describe(field("axis", &SoftmaxParams::axis));
};

}  // namespace cairn::ops
