// SPDX-License-Identifier: Apache-2.0
#include "ops/nn/window.h"

#include <algorithm>
#include <limits>

#include "ops/expect.h"

namespace cairn::ops {
namespace {

std::vector<int64_t> list(const Shape& s) { return {s.begin(), s.end()}; }

}  // namespace

int64_t WindowAxis::count(bool ceil_mode) const {
  const int64_t room = length + before + after - extent();
  if (room < 0) return ceil_mode && room > -stride && length + before > 0 ? 1 : 0;
  int64_t windows = room / stride + 1;
  if (ceil_mode && room % stride != 0 && windows * stride < length + before) ++windows;
  return windows;
}

bool WindowAxis::all_windows_read(int64_t windows) const {
  const auto reads = [&](int64_t window) {
    const int64_t skipped =
        std::max<int64_t>(0, before - window * stride);  // positions in front of the first
    const int64_t tap = (skipped + dilation - 1) / dilation;
    return tap < kernel && inside(at(window, tap));
  };
  if (windows < 1 || !reads(0) || !reads(windows - 1)) return false;
  // Windows that begin inside read their first tap. Of those in front, all reach the first `dilation` positions
  // when the first window does.
  if (length >= dilation) return true;
  for (int64_t i = 0; i < windows && i * stride < before; ++i)
    if (!reads(i)) return false;
  return true;
}

void expect_pair(std::string_view name, const Shape& list, int64_t least) {
  constexpr int64_t most =
      std::numeric_limits<int32_t>::max();  // keeps products of two within int64
  bool good = list.rank() == 2;
  for (int64_t value : list) good = good && value >= least && value <= most;
  if (!good)
    wrong_param(name, to_string(list),
                fmt::format("[height, width], each from {} to {}", least, most));
}

std::vector<OnnxAttribute> onnx_window(const OnnxWindow& w) {
  std::vector<OnnxAttribute> out{{"kernel_shape", list(w.kernel)}, {"strides", list(w.stride)}};
  if (w.dilation.rank() != 0) out.push_back({"dilations", list(w.dilation)});
  std::vector<int64_t> pads = list(w.pad_before);
  pads.insert(pads.end(), w.pad_after.begin(), w.pad_after.end());
  out.push_back({"pads", std::move(pads)});
  return out;
}

std::optional<OnnxWindow> read_onnx_window(const OnnxCall& call, const Shape& x,
                                           const Shape& kernel) {
  OnnxWindow w;
  const auto kernel_shape = call.integers("kernel_shape", list(kernel));
  const auto strides = call.integers("strides", {1, 1}),
             dilations = call.integers("dilations", {1, 1});
  const auto pads = call.integers("pads", {0, 0, 0, 0});
  if (x.rank() != 4 || kernel_shape.size() != 2 || strides.size() != 2 || dilations.size() != 2 ||
      pads.size() != 4)
    return std::nullopt;
  w.kernel = Shape(kernel_shape);
  w.stride = Shape(strides);
  w.dilation = Shape(dilations);
  w.pad_before = {pads[0], pads[1]};
  w.pad_after = {pads[2], pads[3]};
  const std::string auto_pad = call.text("auto_pad", "NOTSET");
  if (auto_pad == "NOTSET") return w;
  w.pad_before = w.pad_after = {0, 0};
  if (auto_pad == "VALID") return w;
  if (auto_pad != "SAME_UPPER" && auto_pad != "SAME_LOWER") return std::nullopt;
  expect_pair("kernel_shape", w.kernel, 1);
  expect_pair("strides", w.stride, 1);
  expect_pair("dilations", w.dilation, 1);
  for (int i = 0; i < 2; ++i) {
    const int64_t windows = (x[i + 2] + w.stride[i] - 1) / w.stride[i];
    const int64_t extent = w.dilation[i] * (w.kernel[i] - 1) + 1;
    const int64_t total = std::max<int64_t>(0, (windows - 1) * w.stride[i] + extent - x[i + 2]);
    w.pad_before[i] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.pad_after[i] = total - w.pad_before[i];
  }
  return w;
}

}  // namespace cairn::ops
