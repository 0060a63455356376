// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <cmath>
#include <numbers>

namespace cairn {

double Random::normal() {
  const double u = 1.0 - uniform(), v = uniform();  // u in (0, 1]
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace cairn
