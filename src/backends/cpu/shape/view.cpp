// SPDX-License-Identifier: Apache-2.0
// Operators that only rename elements, where they must be copied after all: one strided copy each,
// of any dtype.
#include <cairn/ops.h>

#include "backends/cpu/shape/shape.h"
#include "backends/cpu/shape/strided_copy.h"

namespace cairn::cpu {
namespace {

std::optional<StridedView> view_of(const KernelRequest& r) {
  return r.op.view(r.params, {r.in[0].shape, dense_strides(r.in[0].shape), 0}, r.in);
}

OfferResult offer(const KernelRequest& r) {
  if (!view_of(r)) return Refusal{"is no view of its input"};
  return KernelOffer{std::vector<Layout>(r.in.size()), {Layout()}};
}

class View : public PreparedKernel {
 public:
  explicit View(StridedCopy copy) : copy_(std::move(copy)) {}
  void run(const void* const* in, void* const* out, void*) const override {
    copy_.run(in[0], out[0]);
  }

 private:
  StridedCopy copy_;
};

std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer&) {
  const StridedView view = *view_of(r);
  const Shape dense = dense_strides(view.shape);
  std::vector<CopyAxis> axes;
  for (int i = 0; i < view.shape.rank(); ++i)
    axes.push_back({view.shape[i], view.strides[i], dense[i]});
  return std::make_unique<View>(StridedCopy(size_of(r.in[0].dtype), std::move(axes), view.offset));
}

}  // namespace

std::vector<const Kernel*> view_kernels() {
  static const auto kernels = [] {
    std::vector<Kernel> list;
    for (const OpDef* op : all_ops())
      if (op->view && op->outputs.size() == 1) list.push_back({op, "cpu.copy", offer, prepare});
    return list;
  }();
  std::vector<const Kernel*> out;
  for (const Kernel& k : kernels) out.push_back(&k);
  return out;
}

}  // namespace cairn::cpu
