// SPDX-License-Identifier: Apache-2.0
// Argmax and argmin along one axis, of any number dtype; the first of equals, NaN wins.
#include <cmath>

#include "backends/cpu/shape/shape.h"
#include "base/parallel.h"
#include "core/strided.h"
#include "ops/catalog.h"
#include "ops/helpers.h"

namespace cairn::cpu {
namespace {

OfferResult offer(const KernelRequest&) { return KernelOffer{{Layout()}, {Layout()}}; }

template <bool largest>
class Extreme : public PreparedKernel {
 public:
  explicit Extreme(const KernelRequest& r)
      : dtype_(r.in[0].dtype),
        x_(r.in[0].shape,
           normalize_axis(parameter<int64_t>(r.params, "axis"), r.in[0].shape.rank())) {}
  void run(const void* const* in, void* const* out, void*) const override {
    visit_dtype(dtype_, [&](auto tag) {
      using T = decltype(tag);
      using V = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
      auto* index = static_cast<int64_t*>(out[0]);
      parallel_for(x_.outer * x_.inner, 1 + (8 << 10) / x_.length, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
          const T* row =
              static_cast<const T*>(in[0]) + k / x_.inner * x_.length * x_.inner + k % x_.inner;
          V best = load_as<V>(row[0]);
          index[k] = 0;
          for (int64_t i = 1; i < x_.length; ++i) {
            const V v = load_as<V>(row[i * x_.inner]);
            const bool better = (largest ? v > best : v < best) || (v != v && best == best);
            if (better) best = v, index[k] = i;
          }
        }
      });
    });
  }

 private:
  DType dtype_;
  ops::AxisView x_;
};

template <bool largest>
std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer&) {
  return std::make_unique<Extreme<largest>>(r);
}

}  // namespace

extern const Kernel argmax_kernel{&ops::argmax_op, "cpu.loops", offer, prepare<true>};
extern const Kernel argmin_kernel{&ops::argmin_op, "cpu.loops", offer, prepare<false>};

}  // namespace cairn::cpu
