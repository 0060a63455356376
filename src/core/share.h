// SPDX-License-Identifier: Apache-2.0
// One copy of what several plans keep.
#pragma once
#include <cairn/tensor.h>

namespace cairn {

// A storage with the same bytes that was given to this function before and still lives; else `mine`, to be found by
// later calls. Nobody may write to either afterwards. Plans of one model for several batch sizes share
// their weights in this way. Thread-safe.
std::shared_ptr<Storage> share_equal(std::shared_ptr<Storage> mine);

}  // namespace cairn
