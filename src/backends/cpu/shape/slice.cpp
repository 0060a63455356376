// SPDX-License-Identifier: Apache-2.0
// A slice that takes whole blocks of a blocked tensor: one strided copy, of any dtype, after which it is blocked still.
#include <algorithm>

#include "backends/cpu/shape/shape.h"
#include "backends/cpu/shape/strided_copy.h"
#include "ops/catalog.h"

namespace cairn::cpu {
namespace {

// Where the slice begins along each axis, and by how many it steps; nothing where it goes backwards.
struct Box {
  Shape begin, step;
};
std::optional<Box> box_of(const KernelRequest& r) {
  const Shape& shape = r.in[0].shape;
  const Shape dense = dense_strides(shape);
  const auto view = r.op.view(r.params, {shape, dense, 0}, r.in);
  if (!view || r.in[0].numel() == 0) return std::nullopt;
  Box box;
  int64_t offset = view->offset;
  for (int i = 0; i < shape.rank(); ++i) {
    box.begin.push_back(offset / dense[i]);
    offset %= dense[i];
    box.step.push_back(view->strides[i] / dense[i]);
    if (view->strides[i] < 0) return std::nullopt;
  }
  return box;
}

OfferResult offer(const KernelRequest& r) {
  const Layout layout = r.settled(0) ? r.layout(0) : Layout();
  if (!layout.exact(r.in[0].shape) || !layout.exact(r.out[0].shape) || r.out[0].numel() == 0)
    return Refusal{"takes blocks that are full"};
  const auto box = box_of(r);
  if (!box) return Refusal{"steps backwards"};
  for (const auto& b : layout.blocks())
    if (box->step[b.axis] != 1 || box->begin[b.axis] % b.size != 0) return Refusal{"does not take whole blocks"};
  return KernelOffer{{layout}, {layout}};
}

class Slice : public PreparedKernel {
 public:
  explicit Slice(StridedCopy copy) : copy_(std::move(copy)) {}
  void run(const void* const* in, void* const* out, void*) const override { copy_.run(in[0], out[0]); }

 private:
  StridedCopy copy_;
};

std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer& o) {
  const Box box = *box_of(r);
  const auto from = memory_axes(r.in[0].shape, o.in[0]), to = memory_axes(r.out[0].shape, o.in[0]);
  std::vector<CopyAxis> axes;
  int64_t offset = 0;
  for (size_t k = 0; k < to.size(); ++k) {
    const int axis = to[k].logical;
    axes.push_back({to[k].length, from[k].stride * box.step[axis], to[k].stride});
    // The outermost part of an axis comes first, and the slice begins at the first place of a block.
    if (std::ranges::find(to.begin(), to.begin() + long(k), axis, &MemoryAxis::logical) == to.begin() + long(k))
      offset += box.begin[axis] / from[k].step * from[k].stride;
  }
  return std::make_unique<Slice>(StridedCopy(size_of(r.in[0].dtype), std::move(axes), offset));
}

}  // namespace

extern const Kernel slice_kernel{&ops::slice_op, "cpu.blocks", offer, prepare};

}  // namespace cairn::cpu
