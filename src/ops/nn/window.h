// SPDX-License-Identifier: Apache-2.0
// Sliding windows over pictures: what convolution and pooling share.
#pragma once
#include <cairn/extend/op.h>

namespace cairn::ops {

// A window that slides along one axis of `length`, with padding on both ends.
struct WindowAxis {
  int64_t length, kernel, stride, before, after, dilation = 1;

  int64_t extent() const { return dilation * (kernel - 1) + 1; }
  // How many windows there are; ≤ 0 when not even one fits. With ceil_mode a last window may hang
  // over the end, unless it would start in the padding behind (as PyTorch counts).
  int64_t count(bool ceil_mode = false) const;
  // The position that a window's tap reads; outside 0 … length−1 is padding.
  int64_t at(int64_t window, int64_t tap) const {
    return window * stride - before + tap * dilation;
  }
  // False when a window lies wholly in the padding.
  bool all_windows_read(int64_t windows) const;
  bool inside(int64_t position) const { return uint64_t(position) < uint64_t(length); }
  // The window whose `tap` reads `position`, or −1.
  int64_t window_at(int64_t position, int64_t tap, int64_t windows) const {
    const int64_t start = position + before - tap * dilation;
    return start >= 0 && start % stride == 0 && start / stride < windows ? start / stride : -1;
  }
};

// Fails unless a list parameter has one value ≥ `least` for height and one for width.
void expect_pair(std::string_view name, const Shape& list, int64_t least);

// --- ONNX ---
// kernel_shape, strides, dilations, pads as attributes; lists that an operator lacks are left
// empty.
struct OnnxWindow {
  Shape kernel, stride{1, 1}, pad_before{0, 0}, pad_after{0, 0}, dilation{1, 1};
};
std::vector<OnnxAttribute> onnx_window(const OnnxWindow& window);
// Reads them back; auto_pad is worked out for an input of this shape. nullopt unless there are two
// spatial axes.
std::optional<OnnxWindow> read_onnx_window(const OnnxCall& call, const Shape& x,
                                           const Shape& kernel = {});

}  // namespace cairn::ops
