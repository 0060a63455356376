// SPDX-License-Identifier: Apache-2.0
// A picture tensor as kernels walk it: planes of one block of channels, each contiguous. Covers
// dense [n, c, ...] (blocks of one channel) and nChw8c, nChw16c and their likes; which layout a
// kernel should ask for.
#pragma once
#include <algorithm>
#include <functional>

#include "runtime/backend.h"

namespace cairn::cpu {

struct Planes {
  int64_t n, channels, blocks, pixels;
  int block;  // channels in a block: 1, or what the layout says
  int64_t plane() const { return pixels * block; }  // elements
  int64_t at(int64_t i, int64_t b) const {
    return (i * blocks + b) * plane();
  }  // where plane b of picture i starts

  // Null unless axis 1 alone is blocked, once, and the outer axes are in order.
  static std::optional<Planes> of(const Shape& shape, const Layout& layout) {
    if (shape.rank() < 2) return std::nullopt;
    Planes p{shape[0], shape[1], shape[1], 1, 1};
    for (int i = 2; i < shape.rank(); ++i) p.pixels *= shape[i];
    if (layout.is_dense()) return p;
    if (layout.blocks().size() != 1 || layout.blocks()[0].axis != 1 ||
        int(layout.order().size()) != shape.rank())
      return std::nullopt;
    for (int i = 0; i < shape.rank(); ++i)
      if (layout.order()[size_t(i)] != i) return std::nullopt;
    p.block = layout.blocks()[0].size;
    p.blocks = (p.channels + p.block - 1) / p.block;
    return p;
  }
};

// The layout in which most bytes of the operands of this shape lie, among those that `fits`
// accepts; a blocked one when there is a tie, dense when there is none.
inline Layout common_layout(const KernelRequest& r, const Shape& shape,
                            const std::function<bool(const Layout&)>& fits) {
  std::vector<std::pair<Layout, int64_t>> votes;
  for (size_t k = 0; k < r.in.size(); ++k) {
    if (r.in[k].shape != shape || !r.settled(k) || !fits(r.layout(k))) continue;
    const auto it = std::ranges::find(votes, r.layout(k), &std::pair<Layout, int64_t>::first);
    (it != votes.end() ? it->second : votes.emplace_back(r.layout(k), 0).second) += r.in[k].bytes();
  }
  const auto best = std::ranges::max_element(votes, [](auto& a, auto& b) {
    return a.second != b.second ? a.second < b.second : a.first.is_dense() && !b.first.is_dense();
  });
  return best == votes.end() ? Layout() : best->first;
}

// Every operand of `shape` in that layout, all others dense.
inline KernelOffer offer_layout(const KernelRequest& r, const Shape& shape, const Layout& layout) {
  KernelOffer offer;
  for (const TensorType& t : r.in) offer.in.push_back(t.shape == shape ? layout : Layout());
  for (const TensorType& t : r.out) offer.out.push_back(t.shape == shape ? layout : Layout());
  return offer;
}

// Why a kernel that takes only f32 refuses; empty when it need not.
inline std::string unless_f32(const KernelRequest& r) {
  for (const TensorType& t : r.in)
    if (t.dtype != DType::f32) return "takes f32 only, got " + std::string(name(t.dtype));
  return {};
}

}  // namespace cairn::cpu
