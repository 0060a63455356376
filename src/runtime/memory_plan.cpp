// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace cairn {

MemoryPlan plan_memory(const std::vector<Lifetime>& buffers) {
  constexpr size_t kAlign = 64;
  // Planes a power of two apart fall into the same cache sets; a few lines between neighbours keep them apart.
  constexpr size_t kSkew = 3 * kAlign;
  MemoryPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });

  std::vector<size_t> placed;  // by offset
  const auto end_of = [&](size_t b) { return plan.offsets[b] + (buffers[b].bytes + kSkew + kAlign - 1) / kAlign * kAlign; };
  for (size_t b : order) {
    const Lifetime& life = buffers[b];
    if (life.bytes == 0) continue;
    size_t at = 0;  // the lowest gap between neighbours in time
    for (size_t other : placed) {
      if (buffers[other].last < life.first || buffers[other].first > life.last) continue;
      if (plan.offsets[other] >= at + (life.bytes + kSkew + kAlign - 1) / kAlign * kAlign) break;
      at = std::max(at, end_of(other));
    }
    plan.offsets[b] = at;
    plan.arena_bytes = std::max(plan.arena_bytes, end_of(b));
    placed.insert(std::ranges::upper_bound(placed, at, {}, [&](size_t p) { return plan.offsets[p]; }), b);
  }

  int steps = 0;
  for (const auto& b : buffers) steps = std::max(steps, b.last + 1);
  std::vector<long long> change(size_t(steps) + 1, 0);
  for (const auto& b : buffers)
    if (b.bytes) change[size_t(b.first)] += (long long)b.bytes, change[size_t(b.last) + 1] -= (long long)b.bytes;
  long long alive = 0;
  for (long long c : change) alive += c, plan.lower_bound = std::max(plan.lower_bound, size_t(alive));
  return plan;
}

}  // namespace cairn
