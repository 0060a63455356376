// SPDX-License-Identifier: Apache-2.0
// Parameters of resizing, and which pixels each output position reads: for kernels and passes.
//
//   resize2d(x) → y           x [n, c, h, w] → [n, c, size]
//   resize2d_grad(dy) → dx    size: height and width of x
#pragma once
#include <cairn/extend/params.h>

#include <algorithm>

namespace cairn::ops {

struct ResizeParams {
  Shape size{1, 1};               // height and width of the result
  std::string mode = "bilinear";  // or "nearest"
  static constexpr auto fields =
      describe(field("size", &ResizeParams::size), field("mode", &ResizeParams::mode));
};

// What position `to` of `to_length` reads from an axis of `from_length`, as PyTorch's interpolate
// without antialias and align_corners: (1 − weight) · at[low] + weight · at[high].
struct ResizeTap {
  int64_t low, high;
  double weight;  // of high
};
inline ResizeTap resize_tap(bool bilinear, int64_t to, int64_t to_length, int64_t from_length) {
  if (!bilinear) {  // floor(to · from_length / to_length), exactly
    const int64_t at = to * from_length / to_length;
    return {at, at, 0};
  }
  const double centre =
      std::max(0.0, (double(to) + 0.5) * double(from_length) / double(to_length) - 0.5);
  const int64_t low = std::min(int64_t(centre), from_length - 1);
  return {low, std::min(low + 1, from_length - 1), centre - double(low)};
}

}  // namespace cairn::ops
