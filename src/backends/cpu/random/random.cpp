// SPDX-License-Identifier: Apache-2.0
// Random numbers in f32 and f64: those of the reference, a Philox block once for the elements that
// share it.
#include <algorithm>

#include "backends/cpu/shape/shape.h"
#include "base/parallel.h"
#include "ops/catalog.h"
#include "ops/random/draw.h"

namespace cairn::cpu {
namespace {

constexpr int64_t kGrain = 2048;  // blocks

OfferResult offer(const KernelRequest& r) {
  if (r.out[0].dtype != DType::f32 && r.out[0].dtype != DType::f64)
    return Refusal{"gives f32 and f64 only, not " + std::string(name(r.out[0].dtype))};
  return KernelOffer{std::vector<Layout>(r.in.size()), {Layout()}};
}

// Fills `out` through make(draw, element, values): `share` elements from one block.
template <int64_t share, class Make>
void draw_all(const TensorType& type, const ops::Draw& draw, void* out, Make&& make) {
  const int64_t count = type.numel();
  const auto fill = [&](auto* y) {
    parallel_for((count + share - 1) / share, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) {
        double values[share];
        make(draw, q, values);
        for (int64_t k = 0; k < std::min(share, count - q * share); ++k)
          y[q * share + k] = std::decay_t<decltype(*y)>(values[k]);
      }
    });
  };
  if (type.dtype == DType::f32)
    fill(static_cast<float*>(out));
  else
    fill(static_cast<double*>(out));
}

class Uniform : public PreparedKernel {
 public:
  explicit Uniform(const KernelRequest& r)
      : type_(r.out[0]),
        stream_(parameter<int64_t>(r.params, "stream")),
        low_(parameter<double>(r.params, "low")),
        high_(parameter<double>(r.params, "high")) {}
  void run(const void* const* in, void* const* out, void*) const override {
    const ops::Draw draw(*static_cast<const int64_t*>(in[0]), stream_,
                         *static_cast<const int64_t*>(in[1]));
    draw_all<4>(type_, draw, out[0], [this](const ops::Draw& d, int64_t q, double* values) {
      const auto bits = d.quad(q);
      for (size_t k = 0; k < 4; ++k)
        values[k] =
            low_ + (high_ - low_) * ops::Draw::fraction(bits[k], ops::uniform_digits(type_.dtype));
    });
  }

 private:
  TensorType type_;
  int64_t stream_;
  double low_, high_;
};

class Normal : public PreparedKernel {
 public:
  explicit Normal(const KernelRequest& r)
      : type_(r.out[0]),
        stream_(parameter<int64_t>(r.params, "stream")),
        mean_(parameter<double>(r.params, "mean")),
        deviation_(parameter<double>(r.params, "deviation")) {}
  void run(const void* const* in, void* const* out, void*) const override {
    const ops::Draw draw(*static_cast<const int64_t*>(in[0]), stream_,
                         *static_cast<const int64_t*>(in[1]));
    draw_all<2>(type_, draw, out[0], [this](const ops::Draw& d, int64_t q, double* values) {
      for (int64_t k = 0; k < 2; ++k) values[k] = mean_ + deviation_ * d.normal(2 * q + k);
    });
  }

 private:
  TensorType type_;
  int64_t stream_;
  double mean_, deviation_;
};

template <class K>
std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer&) {
  return std::make_unique<K>(r);
}

}  // namespace

extern const Kernel random_uniform_kernel{&ops::random_uniform_op, "cpu.philox", offer,
                                          prepare<Uniform>};
extern const Kernel random_normal_kernel{&ops::random_normal_op, "cpu.philox", offer,
                                         prepare<Normal>};

}  // namespace cairn::cpu
