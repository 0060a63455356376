// SPDX-License-Identifier: Apache-2.0
// Maximum and average pooling of f32 and their gradients, dense or with channels in blocks of 8 or
// 16: plane by plane, a row of windows at a time and tap by tap. A plane is one thread's, so bits
// do not depend on their number.
#include "ops/nn/pool.h"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/nn/pool.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first
#include "backends/cpu/backend.h"
#include "backends/cpu/planes.h"
#include "base/parallel.h"
#include "hwy/highway.h"
#include "ops/catalog.h"

#ifndef CAIRN_CPU_POOL_ONCE
#define CAIRN_CPU_POOL_ONCE
namespace cairn::cpu {
namespace {

// What one tap of a row of windows reads: window i reads pixel first + i · stride of its plane, all
// `block` channels.
struct TapRow {
  int64_t windows, first, stride, block;
};

}  // namespace
}  // namespace cairn::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace cairn::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using F = hn::CappedTag<float, 8>;
using I = hn::Rebind<int32_t, F>;
using D = hn::CappedTag<double, 8>;
using H = hn::Rebind<float, D>;

// y and places: the row's best so far. NaN wins.
void MaxTap(const TapRow& t, const float* HWY_RESTRICT x, float* HWY_RESTRICT y,
            int32_t* HWY_RESTRICT places) {
  if (t.block == 1) {
    for (int64_t i = 0; i < t.windows; ++i) {
      const float value = x[t.first + i * t.stride];
      const bool take = (value > y[i]) | (value != value);  // no shortcut: it would be a branch
      y[i] = take ? value : y[i];
      places[i] = take ? int32_t(t.first + i * t.stride) : places[i];
    }
    return;
  }
  const F d;
  const I di;
  for (int64_t i = 0; i < t.windows; ++i) {
    const int64_t pixel = t.first + i * t.stride;
    const auto place = hn::Set(di, int32_t(pixel));
    for (int64_t k = 0; k < t.block; k += int64_t(hn::Lanes(d))) {
      const int64_t at = i * t.block + k;
      const auto value = hn::LoadU(d, x + pixel * t.block + k), best = hn::LoadU(d, y + at);
      const auto take = hn::Or(hn::Gt(value, best), hn::IsNaN(value));
      hn::StoreU(hn::IfThenElse(take, value, best), d, y + at);
      hn::StoreU(hn::IfThenElse(hn::RebindMask(di, take), place, hn::LoadU(di, places + at)), di,
                 places + at);
    }
  }
}

void AddTap(const TapRow& t, const float* HWY_RESTRICT x, double* HWY_RESTRICT sums) {
  if (t.block == 1) {
    for (int64_t i = 0; i < t.windows; ++i) sums[i] += x[t.first + i * t.stride];
    return;
  }
  const D d;
  const H h;
  for (int64_t i = 0; i < t.windows; ++i)
    for (int64_t k = 0; k < t.block; k += int64_t(hn::Lanes(d))) {
      const auto value = hn::PromoteTo(d, hn::LoadU(h, x + (t.first + i * t.stride) * t.block + k));
      hn::StoreU(hn::Add(hn::LoadU(d, sums + i * t.block + k), value), d, sums + i * t.block + k);
    }
}

void SpreadTap(const TapRow& t, const float* HWY_RESTRICT shares, float* HWY_RESTRICT dx) {
  if (t.block == 1) {
    for (int64_t i = 0; i < t.windows; ++i) dx[t.first + i * t.stride] += shares[i];
    return;
  }
  const F d;
  for (int64_t i = 0; i < t.windows; ++i)
    for (int64_t k = 0; k < t.block; k += int64_t(hn::Lanes(d))) {
      float* to = dx + (t.first + i * t.stride) * t.block + k;
      hn::StoreU(hn::Add(hn::LoadU(d, to), hn::LoadU(d, shares + i * t.block + k)), d, to);
    }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace cairn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn::cpu {
namespace {

HWY_EXPORT(MaxTap);
HWY_EXPORT(AddTap);
HWY_EXPORT(SpreadTap);

// The windows of one row whose tap s reads a pixel: window x reads pixel x · stride + offset of its
// row.
struct Span {
  int64_t begin, end, offset;
};

struct Problem {
  Planes planes;  // of the result's batch and channels
  ops::PoolSizes z;
  bool count_padding;
  std::vector<Span> spans;     // one for each tap along a row
  std::vector<int64_t> first;  // for each window of a row, the first pixel it reads

  Problem(const Planes& p, const ops::PoolSizes& sizes, bool count)
      : planes(p), z(sizes), count_padding(count) {
    const ops::WindowAxis& across = z.horizontal;
    first.assign(size_t(z.x), -1);
    for (int64_t s = 0; s < across.kernel; ++s) {
      Span span{z.x, 0, across.at(0, s)};
      for (int64_t x = 0; x < z.x; ++x)
        if (const int64_t at = across.at(x, s); across.inside(at)) {
          span.begin = std::min(span.begin, x);
          span.end = x + 1;
          if (first[size_t(x)] < 0) first[size_t(x)] = at;
        }
      spans.push_back(span);
    }
  }

  // Calls body(tap row, first window of it) for each tap of the windows of row y, in order.
  template <class Body>
  void for_each_tap(int64_t y, Body&& body) const {
    for (int64_t r = 0; r < z.vertical.kernel; ++r)
      if (const int64_t h = z.vertical.at(y, r); z.vertical.inside(h))
        for (const Span& span : spans)
          if (const int64_t x = span.begin; x < span.end)
            body(TapRow{span.end - x, h * z.w + x * z.horizontal.stride + span.offset,
                        z.horizontal.stride, planes.block},
                 x * planes.block);
  }
  // The first pixel that window (y, x) reads.
  int64_t first_pixel(int64_t y, int64_t x) const {
    int64_t r = 0;
    while (!z.vertical.inside(z.vertical.at(y, r))) ++r;
    return z.vertical.at(y, r) * z.w + first[size_t(x)];
  }
  int64_t plane_in() const { return z.h * z.w * planes.block; }
  double count(int64_t y, int64_t x) const {
    return double(ops::avg_pool_count(z.vertical, y, count_padding) *
                  ops::avg_pool_count(z.horizontal, x, count_padding));
  }
  int64_t row() const { return z.x * planes.block; }
  // Calls body(begin, end) over planes on all threads.
  template <class Body>
  void share_planes(Body&& body) const {
    const int64_t work = std::max<int64_t>(1, std::max(z.y * z.x, z.h * z.w) * planes.block);
    parallel_for(planes.n * planes.blocks, 1 + (1 << 12) / work, body);
  }
};

void max_pool(const Problem& p, const void* const* in, void* const* out) {
  p.share_planes([&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane)
      for (int64_t i = 0; i < p.z.y; ++i) {
        const float* x = static_cast<const float*>(in[0]) + plane * p.plane_in();
        float* y = static_cast<float*>(out[0]) + (plane * p.z.y + i) * p.row();
        int32_t* places = static_cast<int32_t*>(out[1]) + (plane * p.z.y + i) * p.row();
        std::fill_n(y, p.row(), -std::numeric_limits<float>::infinity());
        for (int64_t j = 0; j < p.z.x; ++j)
          std::fill_n(places + j * p.planes.block, p.planes.block, int32_t(p.first_pixel(i, j)));
        p.for_each_tap(i, [&](const TapRow& t, int64_t at) {
          HWY_DYNAMIC_DISPATCH(MaxTap)(t, x, y + at, places + at);
        });
      }
  });
}

void avg_pool(const Problem& p, const void* const* in, void* const* out) {
  p.share_planes([&](int64_t begin, int64_t end) {
    std::vector<double> sums(static_cast<size_t>(p.row()));
    for (int64_t plane = begin; plane < end; ++plane)
      for (int64_t i = 0; i < p.z.y; ++i) {
        const float* x = static_cast<const float*>(in[0]) + plane * p.plane_in();
        float* y = static_cast<float*>(out[0]) + (plane * p.z.y + i) * p.row();
        std::ranges::fill(sums, 0.0);
        p.for_each_tap(i, [&](const TapRow& t, int64_t at) {
          HWY_DYNAMIC_DISPATCH(AddTap)(t, x, &sums[size_t(at)]);
        });
        for (int64_t j = 0, k = 0; j < p.z.x; ++j)
          for (const double count = p.count(i, j); k < (j + 1) * p.planes.block; ++k)
            y[k] = float(sums[size_t(k)] / count);
      }
  });
}

void avg_pool_grad(const Problem& p, const void* const* in, void* const* out) {
  p.share_planes([&](int64_t begin, int64_t end) {
    std::vector<float> shares(static_cast<size_t>(p.row()));
    for (int64_t plane = begin; plane < end; ++plane) {
      float* dx = static_cast<float*>(out[0]) + plane * p.plane_in();
      std::fill_n(dx, p.plane_in(), 0.0f);
      for (int64_t i = 0; i < p.z.y; ++i) {
        const float* dy = static_cast<const float*>(in[0]) + (plane * p.z.y + i) * p.row();
        for (int64_t j = 0, k = 0; j < p.z.x; ++j)
          for (const double count = p.count(i, j); k < (j + 1) * p.planes.block; ++k)
            shares[size_t(k)] = float(dy[k] / count);
        p.for_each_tap(i, [&](const TapRow& t, int64_t at) {
          HWY_DYNAMIC_DISPATCH(SpreadTap)(t, &shares[size_t(at)], dx);
        });
      }
    }
  });
}

class Pool : public PreparedKernel {
 public:
  using Run = void (*)(const Problem&, const void* const*, void* const*);
  Pool(Problem p, Run run) : p_(std::move(p)), run_(run) {}
  void run(const void* const* in, void* const* out, void*) const override { run_(p_, in, out); }

 private:
  Problem p_;
  Run run_;
};

class MaxPoolGrad : public PreparedKernel {
 public:
  MaxPoolGrad(const Planes& dy, int64_t pixels) : dy_(dy), pixels_(pixels) {}
  void run(const void* const* in, void* const* out, void*) const override {
    const int64_t block = dy_.block, work = std::max(dy_.plane(), pixels_ * block);
    parallel_for(dy_.n * dy_.blocks, 1 + (1 << 12) / std::max<int64_t>(1, work),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t plane = begin; plane < end; ++plane) {
                     const float* dy = static_cast<const float*>(in[0]) + plane * dy_.plane();
                     const int32_t* indices =
                         static_cast<const int32_t*>(in[1]) + plane * dy_.plane();
                     float* dx = static_cast<float*>(out[0]) + plane * pixels_ * block;
                     std::fill_n(dx, pixels_ * block, 0.0f);
                     for (int64_t i = 0; i < dy_.plane(); i += block)
                       for (int64_t k = 0; k < block; ++k) {
                         const int64_t place = indices[i + k];
                         if (uint64_t(place) >= uint64_t(pixels_)) ops::wrong_place(place, pixels_);
                         dx[place * block + k] += dy[i + k];
                       }
                   }
                 });
  }

 private:
  Planes dy_;
  int64_t pixels_;
};

// Whole blocks only: padding channels would have no place.
bool fits(const Shape& shape, const Layout& layout) {
  const auto planes = Planes::of(shape, layout);
  return planes && planes->channels % planes->block == 0 &&
         (planes->block == 1 || planes->block == 8 || planes->block == 16);
}

OfferResult offer(const KernelRequest& r) {
  if (r.in[0].dtype != DType::f32)
    return Refusal{"takes f32 only, got " + std::string(name(r.in[0].dtype))};
  const Shape& shape = r.in[0].shape;
  const Layout layout = common_layout(r, shape, [&](const Layout& l) { return fits(shape, l); });
  return KernelOffer{std::vector(r.in.size(), layout), std::vector(r.out.size(), layout)};
}

template <class Params>
ops::PoolSizes sizes(const KernelRequest& r) {
  const auto& p = r.params.as<Params>();
  if constexpr (std::is_same_v<Params, ops::MaxPoolParams>)
    return ops::max_pool_sizes(p, r.in[0]);
  else if constexpr (std::is_same_v<Params, ops::AvgPoolParams>)
    return ops::avg_pool_sizes(p, r.in[0]);
  else
    return ops::avg_pool_grad_sizes(p, r.in[0]);
}
template <class Params>
bool count_padding(const KernelRequest& r) {
  if constexpr (std::is_same_v<Params, ops::MaxPoolParams>)
    return true;  // it has no divisor
  else
    return r.params.as<Params>().count_padding;
}

template <class Params, Pool::Run run>
std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer& o) {
  return std::make_unique<Pool>(
      Problem(*Planes::of(r.in[0].shape, o.in[0]), sizes<Params>(r), count_padding<Params>(r)),
      run);
}
std::unique_ptr<PreparedKernel> prepare_max_pool_grad(const KernelRequest& r,
                                                      const KernelOffer& o) {
  const Shape& size = r.params.as<ops::MaxPoolGradParams>().size;
  return std::make_unique<MaxPoolGrad>(*Planes::of(r.in[0].shape, o.in[0]), size[0] * size[1]);
}

}  // namespace

extern const Kernel max_pool_kernel{&ops::max_pool_op, "cpu.planes", offer,
                                    prepare<ops::MaxPoolParams, max_pool>};
extern const Kernel max_pool_grad_kernel{&ops::max_pool_grad_op, "cpu.planes", offer,
                                         prepare_max_pool_grad};
extern const Kernel avg_pool_kernel{&ops::avg_pool_op, "cpu.planes", offer,
                                    prepare<ops::AvgPoolParams, avg_pool>};
extern const Kernel avg_pool_grad_kernel{&ops::avg_pool_grad_op, "cpu.planes", offer,
                                         prepare<ops::AvgPoolGradParams, avg_pool_grad>};

}  // namespace cairn::cpu
#endif
