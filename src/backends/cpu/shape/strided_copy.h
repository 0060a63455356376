// SPDX-License-Identifier: Apache-2.0
// Copies a box of elements from one strided place to another: what transposing, slicing,
// broadcasting, joining and padding come down to.
#pragma once
#include <cairn/extend/op.h>

#include "core/layout.h"

namespace cairn::cpu {

// One axis of the box: its length, and how far apart its elements lie on both sides.
struct CopyAxis {
  int64_t length, from, to;
};

// Planned once for a box, run on all threads. Strides may be negative; `from` may be 0 (repeats).
// Places that are written must not overlap.
class StridedCopy {
 public:
  StridedCopy(size_t element_size, std::vector<CopyAxis> axes, int64_t from_offset = 0,
              int64_t to_offset = 0);
  void run(const void* from, void* to) const;

 private:
  template <class T>
  void run_as(const T* from, T* to) const;
  size_t size_;
  int64_t from_offset_, to_offset_;
  std::vector<CopyAxis> outer_;  // outermost first
  CopyAxis inner_{1, 1, 1};      // the one walked in the inner loop: `to` is smallest
  CopyAxis across_{
      1, 0,
      0};  // when the inner loop would jump while reading: the axis along which reading is dense
};

// A tensor in a layout, as axes of memory: length, and the stride of each in elements, outermost
// first. `logical` says which axis of the tensor each divides. The layout must be exact.
struct MemoryAxis {
  int logical;
  int64_t length, stride;
  int64_t step;  // of the logical axis, for one step along this
};
std::vector<MemoryAxis> memory_axes(const Shape& shape, const Layout& layout);

// Sets `count` elements to the value that the double stands for in that dtype.
void fill_elements(void* to, DType dtype, int64_t count, double value);

}  // namespace cairn::cpu
