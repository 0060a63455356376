// SPDX-License-Identifier: Apache-2.0
// Gather: rows of an axis, copied whole, of any dtype.
#include <cstring>

#include "backends/cpu/shape/shape.h"
#include "base/parallel.h"
#include "ops/catalog.h"
#include "ops/helpers.h"
#include "ops/index/index.h"

namespace cairn::cpu {
namespace {

OfferResult offer(const KernelRequest&) { return KernelOffer{{Layout(), Layout()}, {Layout()}}; }

class Gather : public PreparedKernel {
 public:
  explicit Gather(const KernelRequest& r)
      : x_(r.in[0].shape,
           normalize_axis(parameter<int64_t>(r.params, "axis"), r.in[0].shape.rank())),
        indices_(r.in[1]),
        row_bytes_(x_.inner * int64_t(size_of(r.in[0].dtype))) {}
  void run(const void* const* in, void* const* out, void*) const override {
    const int64_t count = indices_.numel();
    std::vector<int64_t> rows(size_t(count), 0);
    for (int64_t k = 0; k < count; ++k)
      rows[size_t(k)] =
          ops::checked_index(indices_.dtype == DType::i64 ? static_cast<const int64_t*>(in[1])[k]
                                                          : static_cast<const int32_t*>(in[1])[k],
                             x_.length);
    parallel_for(x_.outer * count, 1 + (32 << 10) / std::max<int64_t>(1, row_bytes_),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t k = begin; k < end; ++k)
                     std::memcpy(static_cast<std::byte*>(out[0]) + k * row_bytes_,
                                 static_cast<const std::byte*>(in[0]) +
                                     (k / count * x_.length + rows[size_t(k % count)]) * row_bytes_,
                                 size_t(row_bytes_));
                 });
  }

 private:
  ops::AxisView x_;
  TensorType indices_;
  int64_t row_bytes_;
};

std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer&) {
  return std::make_unique<Gather>(r);
}

}  // namespace

extern const Kernel gather_kernel{&ops::gather_op, "cpu.rows", offer, prepare};

}  // namespace cairn::cpu
