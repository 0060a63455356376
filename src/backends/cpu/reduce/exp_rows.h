// SPDX-License-Identifier: Apache-2.0
// What softmax and cross-entropy share: sums of exponentials along rows of f32, safe for large
// values.
#pragma once
#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "ops/helpers.h"

namespace cairn::cpu {

// top = max x and total = Σ exp(x − top) of `count` elements; `y`, unless null, gets the
// exponentials.
struct ExpSum {
  float top, total;
};
ExpSum exp_sum(const float* x, int64_t count, float* y);
// y = factor · exp(x − shift).
void scaled_exp(const float* x, int64_t count, float shift, float factor, float* y);

// Calls body(row, x, y) in parallel for each row along the axis of `v`, row by row contiguous:
// where the axis is not the last, sixteen rows at a time are copied together and back. `y` may be
// null: then the rows are only read.
template <class Body>
void for_each_contiguous_row(const ops::AxisView& v, const float* x, float* y, const Body& body) {
  const int64_t grain = 1 + 4096 / std::max<int64_t>(1, v.length);
  if (v.inner == 1) {
    parallel_for(v.outer, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        body(row, x + row * v.length, y ? y + row * v.length : nullptr);
    });
    return;
  }
  constexpr int64_t kTile = 16;
  const int64_t tiles = (v.inner + kTile - 1) / kTile;
  parallel_for(v.outer * tiles, 1 + grain / kTile, [&](int64_t begin, int64_t end) {
    std::vector<float> from(size_t(kTile * v.length)), to(y ? from.size() : 0);
    for (int64_t t = begin; t < end; ++t) {
      const int64_t outer = t / tiles, first = t % tiles * kTile,
                    width = std::min(kTile, v.inner - first);
      const int64_t base = outer * v.length * v.inner + first;
      for (int64_t k = 0; k < v.length; ++k)
        for (int64_t i = 0; i < width; ++i)
          from[size_t(i * v.length + k)] = x[base + k * v.inner + i];
      for (int64_t i = 0; i < width; ++i)
        body(outer * v.inner + first + i, &from[size_t(i * v.length)],
             y ? &to[size_t(i * v.length)] : nullptr);
      if (!y) continue;
      for (int64_t k = 0; k < v.length; ++k)
        for (int64_t i = 0; i < width; ++i)
          y[base + k * v.inner + i] = to[size_t(i * v.length + k)];
    }
  });
}

}  // namespace cairn::cpu
