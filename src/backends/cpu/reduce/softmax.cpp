// SPDX-License-Identifier: Apache-2.0
// Softmax and log-softmax of f32, row by row.
#include "ops/reduce/softmax.h"

#include <cmath>

#include "backends/cpu/backend.h"
#include "backends/cpu/planes.h"
#include "backends/cpu/reduce/exp_rows.h"
#include "ops/catalog.h"

namespace cairn::cpu {
namespace {

template <bool logarithm>
class Softmax : public PreparedKernel {
 public:
  explicit Softmax(const KernelRequest& r)
      : view_(r.in[0].shape,
              normalize_axis(r.params.as<ops::SoftmaxParams>().axis, r.in[0].shape.rank())) {}
  void run(const void* const* in, void* const* out, void*) const override {
    for_each_contiguous_row(view_, static_cast<const float*>(in[0]), static_cast<float*>(out[0]),
                            [&](int64_t, const float* x, float* y) {
                              const ExpSum sum = exp_sum(x, view_.length, logarithm ? nullptr : y);
                              const float log_total = std::log(sum.total), inverse = 1 / sum.total;
                              for (int64_t k = 0; k < view_.length; ++k)
                                y[k] = logarithm ? x[k] - sum.top - log_total : y[k] * inverse;
                            });
  }

 private:
  ops::AxisView view_;
};

OfferResult offer(const KernelRequest& r) {
  if (std::string why = unless_f32(r); !why.empty()) return Refusal{std::move(why)};
  return KernelOffer{.in = {{}}, .out = {{}}, .in_place = {{0, 0}}};
}
template <bool logarithm>
std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer&) {
  return std::make_unique<Softmax<logarithm>>(r);
}

}  // namespace

extern const Kernel softmax_kernel{&ops::softmax_op, "cpu.rows", offer, prepare<false>};
extern const Kernel log_softmax_kernel{&ops::log_softmax_op, "cpu.rows", offer, prepare<true>};

}  // namespace cairn::cpu
