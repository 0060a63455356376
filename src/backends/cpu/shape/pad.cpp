// SPDX-License-Identifier: Apache-2.0
// Pad, and slice_grad, which puts a slice back among zeros: a constant everywhere, then one strided
// copy.
#include "backends/cpu/shape/shape.h"
#include "backends/cpu/shape/strided_copy.h"
#include "ops/catalog.h"

namespace cairn::cpu {
namespace {

using List = std::vector<int64_t>;

OfferResult offer(const KernelRequest&) { return KernelOffer{{Layout()}, {Layout()}}; }

class Among : public PreparedKernel {
 public:
  Among(const TensorType& out, double value, StridedCopy copy)
      : out_(out), value_(value), copy_(std::move(copy)) {}
  void run(const void* const* in, void* const* out, void*) const override {
    fill_elements(out[0], out_.dtype, out_.numel(), value_);
    copy_.run(in[0], out[0]);
  }

 private:
  TensorType out_;
  double value_;
  StridedCopy copy_;
};

std::unique_ptr<PreparedKernel> among(const KernelRequest& r, double value, const Shape& to,
                                      int64_t offset) {
  const Shape& x = r.in[0].shape;
  const Shape dense = dense_strides(x);
  std::vector<CopyAxis> axes;
  for (int i = 0; i < x.rank(); ++i) axes.push_back({x[i], dense[i], to[i]});
  return std::make_unique<Among>(r.out[0], value,
                                 StridedCopy(size_of(r.in[0].dtype), std::move(axes), 0, offset));
}

std::unique_ptr<PreparedKernel> prepare_pad(const KernelRequest& r, const KernelOffer&) {
  const Shape to = dense_strides(r.out[0].shape);
  const List before = parameter<List>(r.params, "before");
  int64_t offset = 0;
  for (int i = 0; i < to.rank(); ++i) offset += before[size_t(i)] * to[i];
  return among(r, parameter<double>(r.params, "value"), to, offset);
}

std::unique_ptr<PreparedKernel> prepare_slice_grad(const KernelRequest& r, const KernelOffer&) {
  NamedValues slice;
  for (const char* name : {"begin", "end", "step"})
    slice.push_back({name, parameter<List>(r.params, name)});
  const Shape& full = r.out[0].shape;
  const auto view =
      ops::slice_op.view(ops::slice_op.make_params(slice), {full, dense_strides(full), 0}, r.out);
  return among(r, 0, view->strides, view->offset);
}

}  // namespace

extern const Kernel pad_kernel{&ops::pad_op, "cpu.copy", offer, prepare_pad};
extern const Kernel slice_grad_kernel{&ops::slice_grad_op, "cpu.copy", offer, prepare_slice_grad};

}  // namespace cairn::cpu
