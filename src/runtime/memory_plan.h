// SPDX-License-Identifier: Apache-2.0
// graph → arena offsets: buffers with lifetimes get places in one arena, so that those alive together never
// overlap. Greedy by size (Pisarchyk and Lee, "Efficient memory management for deep neural net inference",
// arXiv 2001.03288).
#pragma once
#include <cstddef>
#include <vector>

namespace cairn {

struct Lifetime {
  size_t bytes;
  int first, last;  // steps, inclusive
};
struct MemoryPlan {
  std::vector<size_t> offsets;  // multiples of 64, one a buffer
  size_t arena_bytes = 0;
  size_t lower_bound = 0;       // the most bytes alive at one step
};
MemoryPlan plan_memory(const std::vector<Lifetime>& buffers);

}  // namespace cairn
