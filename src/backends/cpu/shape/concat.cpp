// SPDX-License-Identifier: Apache-2.0
// Concat and split: one strided copy a part, of any dtype; blocked tensors stay blocked where whole
// blocks meet.
#include "backends/cpu/planes.h"
#include "backends/cpu/shape/shape.h"
#include "backends/cpu/shape/strided_copy.h"
#include "ops/catalog.h"

namespace cairn::cpu {
namespace {

int axis_of(const KernelRequest& r) {
  return normalize_axis(parameter<int64_t>(r.params, "axis"), r.in[0].shape.rank());
}
// The whole and its parts, whichever way.
bool joins(const KernelRequest& r) { return &r.op == &ops::concat_op; }
const TensorType& whole(const KernelRequest& r) { return joins(r) ? r.out[0] : r.in[0]; }
Types parts(const KernelRequest& r) { return joins(r) ? r.in : r.out; }

OfferResult offer(const KernelRequest& r) {
  const auto fits = [&](const Layout& l) {
    if (!l.is_dense() && int(l.order().size()) != whole(r).shape.rank()) return false;
    return l.exact(whole(r).shape) &&
           std::ranges::all_of(parts(r), [&](auto& t) { return l.exact(t.shape); });
  };
  // The inputs differ in shape: the first settled one decides.
  Layout layout;
  for (size_t k = 0; k < r.in.size(); ++k)
    if (r.settled(k) && fits(r.layout(k))) {
      layout = r.layout(k);
      if (!layout.is_dense()) break;
    }
  return KernelOffer{std::vector(r.in.size(), layout), std::vector(r.out.size(), layout)};
}

class Parts : public PreparedKernel {
 public:
  Parts(std::vector<StridedCopy> copies, bool joins) : copies_(std::move(copies)), joins_(joins) {}
  void run(const void* const* in, void* const* out, void*) const override {
    for (size_t k = 0; k < copies_.size(); ++k)
      copies_[k].run(in[joins_ ? k : 0], out[joins_ ? 0 : k]);
  }

 private:
  std::vector<StridedCopy> copies_;
  bool joins_;
};

std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer& o) {
  const Layout& layout = o.in[0];
  const int axis = axis_of(r);
  const auto all = memory_axes(whole(r).shape, layout);
  std::vector<StridedCopy> copies;
  int64_t done = 0;  // along the axis
  for (const TensorType& part : parts(r)) {
    const auto own = memory_axes(part.shape, layout);
    std::vector<CopyAxis> axes;
    int64_t offset = 0;
    for (size_t k = 0; k < own.size(); ++k) {
      axes.push_back({own[k].length, joins(r) ? own[k].stride : all[k].stride,
                      joins(r) ? all[k].stride : own[k].stride});
      // Blocks are filled: the part starts at the first place of one.
      if (own[k].logical == axis && offset == 0) offset = done / own[k].step * all[k].stride;
    }
    copies.emplace_back(size_of(part.dtype), std::move(axes), joins(r) ? 0 : offset,
                        joins(r) ? offset : 0);
    done += part.shape[axis];
  }
  return std::make_unique<Parts>(std::move(copies), joins(r));
}

}  // namespace

extern const Kernel concat_kernel{&ops::concat_op, "cpu.copy", offer, prepare};
extern const Kernel split_kernel{&ops::split_op, "cpu.copy", offer, prepare};

}  // namespace cairn::cpu
