// SPDX-License-Identifier: Apache-2.0
// Full, iota and one_hot: tensors from parameters and indices, of any dtype.
#include "backends/cpu/shape/shape.h"
#include "backends/cpu/shape/strided_copy.h"
#include "base/parallel.h"
#include "core/strided.h"
#include "ops/catalog.h"
#include "ops/helpers.h"

namespace cairn::cpu {
namespace {

constexpr int64_t kGrain = 16 << 10;

OfferResult offer(const KernelRequest& r) {
  return KernelOffer{std::vector<Layout>(r.in.size()), std::vector<Layout>(r.out.size())};
}

class Full : public PreparedKernel {
 public:
  explicit Full(const KernelRequest& r)
      : type_(r.out[0]), value_(parameter<double>(r.params, "value")) {}
  void run(const void* const*, void* const* out, void*) const override {
    fill_elements(out[0], type_.dtype, type_.numel(), value_);
  }

 private:
  TensorType type_;
  double value_;
};

class Iota : public PreparedKernel {
 public:
  explicit Iota(const KernelRequest& r)
      : dtype_(r.out[0].dtype),
        count_(r.out[0].numel()),
        view_(r.out[0].shape,
              normalize_axis(parameter<int64_t>(r.params, "axis"), r.out[0].shape.rank())) {}
  void run(const void* const*, void* const* out, void*) const override {
    visit_dtype(dtype_, [&](auto tag) {
      using T = decltype(tag);
      auto* y = static_cast<T*>(out[0]);
      parallel_for(count_, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) y[k] = store_as<T>(k / view_.inner % view_.length);
      });
    });
  }

 private:
  DType dtype_;
  int64_t count_;
  ops::AxisView view_;
};

class OneHot : public PreparedKernel {
 public:
  explicit OneHot(const KernelRequest& r)
      : in_(r.in[0]), out_(r.out[0]), classes_(parameter<int64_t>(r.params, "classes")) {}
  void run(const void* const* in, void* const* out, void*) const override {
    const auto index = [&](int64_t k) {
      return in_.dtype == DType::i64 ? static_cast<const int64_t*>(in[0])[k]
                                     : static_cast<const int32_t*>(in[0])[k];
    };
    fill_elements(out[0], out_.dtype, out_.numel(), 0);
    visit_dtype(out_.dtype, [&](auto tag) {
      using T = decltype(tag);
      for (int64_t k = 0; k < in_.numel(); ++k)
        if (const int64_t i = index(k); i >= 0 && i < classes_)
          static_cast<T*>(out[0])[k * classes_ + i] = store_as<T>(1.0);
    });
  }

 private:
  TensorType in_, out_;
  int64_t classes_;
};

template <class K>
std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer&) {
  return std::make_unique<K>(r);
}

}  // namespace

extern const Kernel full_kernel{&ops::full_op, "cpu.loops", offer, prepare<Full>};
extern const Kernel iota_kernel{&ops::iota_op, "cpu.loops", offer, prepare<Iota>};
extern const Kernel one_hot_kernel{&ops::one_hot_op, "cpu.loops", offer, prepare<OneHot>};

}  // namespace cairn::cpu
