// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/shape/strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/parallel.h"
#include "core/strided.h"
#include "ops/helpers.h"

namespace cairn::cpu {
namespace {

constexpr int64_t kGrainBytes = 64 << 10;  // less is not worth a thread
constexpr int64_t kTile =
    16;  // elements: a tile of both sides fits the L1 cache, and reads whole lines

// Walks the outer axes; offsets follow.
class Walk {
 public:
  Walk(std::span<const CopyAxis> axes, int64_t start) : axes_(axes), index_(axes.size()) {
    for (size_t k = axes.size(); k-- > 0;) {
      index_[k] = start % axes[k].length;
      start /= axes[k].length;
      from += index_[k] * axes[k].from;
      to += index_[k] * axes[k].to;
    }
  }
  void next() {
    for (size_t k = axes_.size(); k-- > 0;) {
      from += axes_[k].from;
      to += axes_[k].to;
      if (++index_[k] < axes_[k].length) return;
      from -= axes_[k].from * axes_[k].length;
      to -= axes_[k].to * axes_[k].length;
      index_[k] = 0;
    }
  }
  int64_t from = 0, to = 0;

 private:
  std::span<const CopyAxis> axes_;
  std::vector<int64_t> index_;
};

template <class T>
void copy_row(const T* from, T* to, const CopyAxis& row) {
  if (row.to == 1 && row.from == 1)
    std::memcpy(to, from, size_t(row.length) * sizeof(T));
  else if (row.to == 1 && row.from == 0)
    std::fill_n(to, row.length, *from);
  else
    for (int64_t k = 0; k < row.length; ++k) to[k * row.to] = from[k * row.from];
}

}  // namespace

StridedCopy::StridedCopy(size_t element_size, std::vector<CopyAxis> axes, int64_t from_offset,
                         int64_t to_offset)
    : size_(element_size), from_offset_(from_offset), to_offset_(to_offset) {
  std::erase_if(axes, [](const CopyAxis& a) { return a.length == 1; });
  std::ranges::stable_sort(axes, [](auto& a, auto& b) { return std::abs(a.to) > std::abs(b.to); });
  for (const CopyAxis& a : axes) {
    if (!outer_.empty() && outer_.back().from == a.from * a.length &&
        outer_.back().to == a.to * a.length)
      outer_.back() = {outer_.back().length * a.length, a.from, a.to};
    else
      outer_.push_back(a);
  }
  if (outer_.empty()) return;
  inner_ = outer_.back();
  outer_.pop_back();
  if (inner_.from == 1 || inner_.from == 0) return;
  const auto dense = std::ranges::find(outer_, 1, &CopyAxis::from);
  if (dense == outer_.end()) return;
  across_ = *dense;
  outer_.erase(dense);
}

template <class T>
void StridedCopy::run_as(const T* from, T* to) const {
  int64_t boxes = 1;
  for (const CopyAxis& a : outer_) boxes *= a.length;
  const int64_t bands = (across_.length + kTile - 1) / kTile;  // of tiles, one box each
  if (boxes * across_.length * inner_.length == 0) return;
  const int64_t band_bytes = std::min(across_.length, kTile) * inner_.length * int64_t(sizeof(T));
  parallel_for(boxes * bands, 1 + kGrainBytes / band_bytes, [&](int64_t begin, int64_t end) {
    if (bands == 1 && across_.length == 1) {
      Walk walk(outer_, begin);
      for (int64_t k = begin; k < end; ++k, walk.next())
        copy_row(from + walk.from, to + walk.to, inner_);
      return;
    }
    for (int64_t k = begin; k < end; ++k) {
      const Walk walk(outer_, k / bands);
      const int64_t first = k % bands * kTile, rows = std::min(kTile, across_.length - first);
      const T* source = from + walk.from + first * across_.from;
      T* target = to + walk.to + first * across_.to;
      for (int64_t column = 0; column < inner_.length; column += kTile) {
        const CopyAxis part{std::min(kTile, inner_.length - column), inner_.from, inner_.to};
        for (int64_t r = 0; r < rows; ++r)
          copy_row(source + column * part.from + r * across_.from,
                   target + column * part.to + r * across_.to, part);
      }
    }
  });
}

void StridedCopy::run(const void* from, void* to) const {
  const auto as = [&](auto tag) {
    using T = decltype(tag);
    run_as(static_cast<const T*>(from) + from_offset_, static_cast<T*>(to) + to_offset_);
  };
  if (size_ == 1)
    as(uint8_t{});
  else if (size_ == 2)
    as(uint16_t{});
  else if (size_ == 4)
    as(uint32_t{});
  else
    as(uint64_t{});
}

std::vector<MemoryAxis> memory_axes(const Shape& shape, const Layout& layout) {
  std::vector<MemoryAxis> out;
  if (layout.is_dense()) {
    for (int i = 0; i < shape.rank(); ++i) out.push_back({i, shape[i], 0, 1});
  } else {
    std::array<int64_t, kMaxRank> block;
    block.fill(1);
    for (const auto& b : layout.blocks()) block[size_t(b.axis)] *= b.size;
    for (int8_t axis : layout.order())
      out.push_back({axis, shape[axis] / block[size_t(axis)], 0, block[size_t(axis)]});
    for (const auto& b : layout.blocks())
      out.push_back({b.axis, b.size, 0, block[size_t(b.axis)] /= b.size});
  }
  int64_t stride = 1;
  for (auto it = out.rbegin(); it != out.rend(); ++it) {
    it->stride = stride;
    stride *= std::max<int64_t>(1, it->length);
  }
  return out;
}

void fill_elements(void* to, DType dtype, int64_t count, double value) {
  visit_dtype(dtype, [&](auto tag) {
    using T = decltype(tag);
    const T v = is_float(dtype) ? store_as<T>(value) : store_as<T>(ops::to_integer(value, dtype));
    parallel_for(count, kGrainBytes / int64_t(sizeof(T)), [&](int64_t begin, int64_t end) {
      std::fill(static_cast<T*>(to) + begin, static_cast<T*>(to) + end, v);
    });
  });
}

}  // namespace cairn::cpu
