// SPDX-License-Identifier: Apache-2.0
// Batch normalisation, alone and joined with residual and activation. Bound by memory: statistics
// take one pass over x, applying them another, the gradient two; a block of channels goes through
// both passes before the next, so that the second finds much of it in the cache. Sums are taken in
// f32 over few terms, then in f64, plane by plane in a fixed order: the bits depend neither on the
// number of threads nor on joining.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/nn/batch_norm.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first
#include "backends/cpu/backend.h"
#include "backends/cpu/math-inl.h"
#include "backends/cpu/planes.h"
#include "base/parallel.h"
#include "hwy/highway.h"
#include "ops/catalog.h"
#include "ops/fused/norm_act.h"
#include "ops/nn/norm.h"

#ifndef CAIRN_CPU_BATCH_NORM_ONCE
#define CAIRN_CPU_BATCH_NORM_ONCE
namespace cairn::cpu {
namespace {

// Planes are walked sixteen elements at a time: what belongs to a channel is repeated to fill
// sixteen lanes.
constexpr int kLanes = 16;
using Lanes = std::array<float, kLanes>;
using Sums = std::array<double, kLanes>;

struct Gradient {  // dx = dy_scale dy + (x_scale (x − mean) + shift), with the mean of the norm
  Lanes dy_scale, x_scale, shift;
};
struct Forward {  // y = (x − mean) scale + shift
  Lanes mean, scale, shift;
};
struct Backward {
  Forward norm;  // its mean alone, unless the activation is made again
  Gradient gradient;
};
enum class Act { none, relu, silu };

}  // namespace
}  // namespace cairn::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace cairn::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using F = hn::CappedTag<float, kLanes>;
using D = hn::CappedTag<double, kLanes>;
using H = hn::Rebind<float, D>;  // as many floats as a vector of doubles holds
constexpr size_t kF = hn::MaxLanes(F()), kD = hn::MaxLanes(D());

// The last, incomplete lanes of a plane, laid out and filled up with another value.
struct Rest {
  HWY_ALIGN float lanes[kLanes] = {};
  Rest(const float* from, int64_t count) {
    if (from) std::memcpy(lanes, from, size_t(count) * sizeof(float));
  }
  Rest(const float* from, int64_t count, const Lanes& filling) {
    std::memcpy(lanes, filling.data(), sizeof lanes);
    std::memcpy(lanes, from, size_t(count) * sizeof(float));
  }
};

// Two sums of every lane, kept in f32 for a few terms only and then in f64.
class LaneSums {
 public:
  static constexpr int64_t kTerms = 16;  // an f32 lane takes at most
  // step(i, first, second) adds the terms of step i to two rows of vectors.
  template <class Step>
  HWY_INLINE void AddBlock(int64_t steps, Step&& step) {
    const F f;
    hn::Vec<F> first[2][kLanes / kF],
        second[2][kLanes / kF];  // two of each: additions have a latency
    for (int t = 0; t < 2; ++t)
      for (size_t k = 0; k < kLanes / kF; ++k) first[t][k] = second[t][k] = hn::Zero(f);
    int64_t i = 0;
    for (; i + 2 <= steps; i += 2) {
      step(i, first[0], second[0]);
      step(i + 1, first[1], second[1]);
    }
    if (i < steps) step(i, first[0], second[0]);
    HWY_ALIGN float sums[kLanes], squares[kLanes];
    HWY_UNROLL(8)
    for (size_t k = 0; k < kLanes / kF; ++k) {
      hn::Store(hn::Add(first[0][k], first[1][k]), f, sums + k * kF);
      hn::Store(hn::Add(second[0][k], second[1][k]), f, squares + k * kF);
    }
    const H h;
    const D d;
    HWY_UNROLL(8)
    for (size_t k = 0; k < kLanes / kD; ++k) {
      first_[k] = hn::Add(first_[k], hn::PromoteTo(d, hn::Load(h, sums + k * kD)));
      second_[k] = hn::Add(second_[k], hn::PromoteTo(d, hn::Load(h, squares + k * kD)));
    }
  }
  LaneSums() {
    for (size_t k = 0; k < kLanes / kD; ++k) first_[k] = second_[k] = hn::Zero(D());
  }
  void Store(Sums& first, Sums& second) const {
    for (size_t k = 0; k < kLanes / kD; ++k) {
      hn::StoreU(first_[k], D(), &first[k * kD]);
      hn::StoreU(second_[k], D(), &second[k * kD]);
    }
  }

 private:
  hn::Vec<D> first_[kLanes / kD], second_[kLanes / kD];
};

// Σ (x − pivot) and Σ (x − pivot)² of every lane. The pivot is any value of the channel: it keeps
// the terms small where the mean is far from zero.
void PlaneSums(const float* x, const Lanes& pivot, int64_t count, Sums& sums, Sums& squares) {
  const F f;
  hn::Vec<F> center[kLanes / kF];
  for (size_t k = 0; k < kLanes / kF; ++k) center[k] = hn::LoadU(f, &pivot[k * kF]);
  const auto add = [&](const float* from, hn::Vec<F>* sum, hn::Vec<F>* square) HWY_ATTR {
    HWY_UNROLL(8)
    for (size_t k = 0; k < kLanes / kF; ++k) {
      const auto v = hn::Sub(hn::LoadU(f, from + k * kF), center[k]);
      sum[k] = hn::Add(sum[k], v);
      square[k] = hn::MulAdd(v, v, square[k]);
    }
  };
  LaneSums total;
  int64_t left = count / kLanes;
  for (; left > 0; left -= LaneSums::kTerms) {
    const int64_t steps = std::min(left, LaneSums::kTerms);
    total.AddBlock(steps, [&](int64_t i, auto* sum, auto* square)
                              HWY_ATTR { add(x + i * kLanes, sum, square); });
    x += steps * kLanes;
  }
  if (const int64_t rest = count % kLanes)
    total.AddBlock(1, [&](int64_t, auto* sum, auto* square)
                          HWY_ATTR { add(Rest(x, rest, pivot).lanes, sum, square); });
  total.Store(sums, squares);
}

// The norm's result of one row of lanes, made again where the gradient needs it.
class Normed {
 public:
  explicit Normed(const Forward& f) {
    for (size_t k = 0; k < kLanes / kF; ++k) {
      mean_[k] = hn::LoadU(F(), &f.mean[k * kF]);
      scale_[k] = hn::LoadU(F(), &f.scale[k * kF]);
      shift_[k] = hn::LoadU(F(), &f.shift[k * kF]);
    }
  }
  HWY_INLINE hn::Vec<F> operator()(hn::Vec<F> x, size_t k) const {
    return hn::MulAdd(hn::Sub(x, mean_[k]), scale_[k], shift_[k]);
  }

 private:
  hn::Vec<F> mean_[kLanes / kF], scale_[kLanes / kF], shift_[kLanes / kF];
};

// dy before the activation: masked by y > 0 (relu), or times the slope at the norm's result (silu).
template <Act act>
HWY_INLINE hn::Vec<F> Before(hn::Vec<F> dy, const float* y, hn::Vec<F> x, const Normed& z, size_t k) {
  const F f;
  if constexpr (act == Act::relu) return hn::IfThenElseZero(hn::Gt(hn::LoadU(f, y + k * kF), hn::Zero(f)), dy);
  if constexpr (act == Act::silu) return SiluGradF32(f, dy, z(x, k));
  return dy;
}

// Σ dy and Σ dy (x − mean) of every lane, dy taken before the activation.
template <Act act>
void GradSums(const float* dy, const float* y, const float* x, const Forward& norm, int64_t count,
              Sums& sums, Sums& products) {
  constexpr bool masked = act == Act::relu;
  const F f;
  const Normed z(norm);
  hn::Vec<F> center[kLanes / kF];
  for (size_t k = 0; k < kLanes / kF; ++k) center[k] = hn::LoadU(f, &norm.mean[k * kF]);
  const auto add = [&](const float* dy_at, const float* y_at, const float* x_at, hn::Vec<F>* sum,
                       hn::Vec<F>* product) HWY_ATTR {
    HWY_UNROLL(8)
    for (size_t k = 0; k < kLanes / kF; ++k) {
      const auto at = hn::LoadU(f, x_at + k * kF);
      const auto g = Before<act>(hn::LoadU(f, dy_at + k * kF), y_at, at, z, k);
      sum[k] = hn::Add(sum[k], g);
      product[k] = hn::MulAdd(g, hn::Sub(at, center[k]), product[k]);
    }
  };
  LaneSums total;
  int64_t at = 0;
  for (int64_t left = count / kLanes; left > 0; left -= LaneSums::kTerms) {
    const int64_t steps = std::min(left, LaneSums::kTerms);
    total.AddBlock(steps, [&](int64_t i, auto* sum, auto* product) HWY_ATTR {
      const int64_t k = at + i * kLanes;
      add(dy + k, masked ? y + k : y, x + k, sum, product);
    });
    at += steps * kLanes;
  }
  if (const int64_t rest = count % kLanes)
    total.AddBlock(1, [&](int64_t, auto* sum, auto* product) HWY_ATTR {
      add(Rest(dy + at, rest).lanes, Rest(masked ? y + at : nullptr, rest).lanes,
          Rest(x + at, rest).lanes, sum, product);
    });
  total.Store(sums, products);
}
void PlaneGradSums(const float* dy, const float* y, const float* x, Act act, const Forward& norm,
                   int64_t count, Sums& sums, Sums& products) {
  switch (act) {
    case Act::none: return GradSums<Act::none>(dy, y, x, norm, count, sums, products);
    case Act::relu: return GradSums<Act::relu>(dy, y, x, norm, count, sums, products);
    case Act::silu: return GradSums<Act::silu>(dy, y, x, norm, count, sums, products);
  }
}

template <bool residual, Act act>
void ApplyForward(const float* x, const float* r, float* y, const Forward& f, int64_t count) {
  const F d;
  const Normed z(f);
  const auto step = [&](const float* from, const float* more, float* to) HWY_ATTR {
    HWY_UNROLL(8)
    for (size_t k = 0; k < kLanes / kF; ++k) {
      auto v = z(hn::LoadU(d, from + k * kF), k);
      if constexpr (residual) v = hn::Add(v, hn::LoadU(d, more + k * kF));
      if constexpr (act == Act::relu) v = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v);
      if constexpr (act == Act::silu) v = SiluF32(d, v);
      hn::StoreU(v, d, to + k * kF);
    }
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) step(x + i, residual ? r + i : r, y + i);
  if (i < count) {
    Rest rest(x + i, count - i), more(residual ? r + i : nullptr, count - i);
    step(rest.lanes, more.lanes, rest.lanes);
    std::memcpy(y + i, rest.lanes, size_t(count - i) * sizeof(float));
  }
}
void PlaneForward(const float* x, const float* residual, Act act, float* y, const Forward& f,
                  int64_t count) {
  if (act == Act::silu) return ApplyForward<false, Act::silu>(x, residual, y, f, count);
  const bool relu = act == Act::relu;
  if (residual)
    relu ? ApplyForward<true, Act::relu>(x, residual, y, f, count)
         : ApplyForward<true, Act::none>(x, residual, y, f, count);
  else
    relu ? ApplyForward<false, Act::relu>(x, residual, y, f, count)
         : ApplyForward<false, Act::none>(x, residual, y, f, count);
}

template <Act act, bool residual>
void ApplyGradient(const float* dy, const float* y, const float* x, float* dx, float* dr,
                   const Forward& norm, const Gradient& g, int64_t count) {
  constexpr bool masked = act == Act::relu;
  const F d;
  const Normed z(norm);
  hn::Vec<F> mean[kLanes / kF], dy_scale[kLanes / kF], x_scale[kLanes / kF], shift[kLanes / kF];
  for (size_t k = 0; k < kLanes / kF; ++k) {
    mean[k] = hn::LoadU(d, &norm.mean[k * kF]);
    dy_scale[k] = hn::LoadU(d, &g.dy_scale[k * kF]);
    x_scale[k] = hn::LoadU(d, &g.x_scale[k * kF]);
    shift[k] = hn::LoadU(d, &g.shift[k * kF]);
  }
  const auto step = [&](const float* dy_at, const float* y_at, const float* x_at, float* dx_at,
                        float* dr_at) HWY_ATTR {
    HWY_UNROLL(8)
    for (size_t k = 0; k < kLanes / kF; ++k) {
      const auto at = hn::LoadU(d, x_at + k * kF);
      const auto v = Before<act>(hn::LoadU(d, dy_at + k * kF), y_at, at, z, k);
      const auto rest = hn::MulAdd(x_scale[k], hn::Sub(at, mean[k]), shift[k]);
      hn::StoreU(hn::MulAdd(dy_scale[k], v, rest), d, dx_at + k * kF);
      if constexpr (residual) hn::StoreU(v, d, dr_at + k * kF);
    }
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    step(dy + i, masked ? y + i : y, x + i, dx + i, residual ? dr + i : dr);
  if (i < count) {
    const int64_t n = count - i;
    Rest a(dy + i, n), b(masked ? y + i : nullptr, n), c(x + i, n);
    step(a.lanes, b.lanes, c.lanes, c.lanes, b.lanes);
    std::memcpy(dx + i, c.lanes, size_t(n) * sizeof(float));
    if constexpr (residual) std::memcpy(dr + i, b.lanes, size_t(n) * sizeof(float));
  }
}
void PlaneGradient(const float* dy, const float* y, const float* x, float* dx, float* dr, Act act,
                   const Forward& norm, const Gradient& g, int64_t count) {
  if (act == Act::silu) return ApplyGradient<Act::silu, false>(dy, y, x, dx, dr, norm, g, count);
  if (act == Act::relu)
    dr ? ApplyGradient<Act::relu, true>(dy, y, x, dx, dr, norm, g, count)
       : ApplyGradient<Act::relu, false>(dy, y, x, dx, dr, norm, g, count);
  else
    dr ? ApplyGradient<Act::none, true>(dy, y, x, dx, dr, norm, g, count)
       : ApplyGradient<Act::none, false>(dy, y, x, dx, dr, norm, g, count);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace cairn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn::cpu {
namespace {

HWY_EXPORT(PlaneSums);
HWY_EXPORT(PlaneGradSums);
HWY_EXPORT(PlaneForward);
HWY_EXPORT(PlaneGradient);

// Sums of one plane, a channel of its block each.
struct Partial {
  Sums first, second;
};

// Adds the planes of every picture of one block, in order, and folds the lanes into channels.
void fold(const Planes& p, const Partial* partials, double* first, double* second) {
  Sums a{}, b{};
  for (int64_t i = 0; i < p.n; ++i)
    for (size_t lane = 0; lane < kLanes; ++lane) {
      a[lane] += partials[i].first[lane];
      b[lane] += partials[i].second[lane];
    }
  for (int k = 0; k < p.block; ++k) {
    first[k] = second[k] = 0;
    for (int lane = k; lane < kLanes; lane += p.block) {
      first[k] += a[size_t(lane)];
      second[k] += b[size_t(lane)];
    }
  }
}

// Runs gather(picture, block) over all planes, then finish(block) once a block, then apply(picture,
// block). Where there are enough blocks each thread takes whole blocks; the last pictures, still in
// the cache, first.
template <class Gather, class Finish, class Apply>
void over_blocks(const Planes& p, int threads, Gather&& gather, Finish&& finish, Apply&& apply) {
  if (p.blocks % threads == 0 || p.blocks >= 4 * threads) {
    parallel_for(p.blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        for (int64_t i = 0; i < p.n; ++i) gather(i, b);
        finish(b);
        for (int64_t i = p.n - 1; i >= 0; --i) apply(i, b);
      }
    });
    return;
  }
  parallel_for(p.n * p.blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) gather(k / p.blocks, k % p.blocks);
  });
  for (int64_t b = 0; b < p.blocks; ++b) finish(b);
  parallel_for(p.n * p.blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) apply(k / p.blocks, k % p.blocks);
  });
}

struct Problem {
  Planes planes;
  double epsilon;
  Act act;
  bool residual;
  int threads;
  double count() const { return double(std::max<int64_t>(1, planes.n * planes.pixels)); }
  // Puts what belongs to channel k of a block into its lanes.
  void repeat(int k, Lanes& lanes, float value) const {
    for (int lane = k; lane < kLanes; lane += planes.block) lanes[size_t(lane)] = value;
  }
  // Partials come first in the workspace, picture by picture for each block, then one Constants a
  // block.
  Partial* partials(void* workspace) const { return static_cast<Partial*>(workspace); }
  template <class Constants>
  Constants* constants(void* workspace) const {
    return reinterpret_cast<Constants*>(partials(workspace) + planes.n * planes.blocks);
  }
  template <class Constants>
  size_t workspace_bytes() const {
    return size_t(planes.n * planes.blocks) * sizeof(Partial) +
           size_t(planes.blocks) * sizeof(Constants);
  }
};

Problem problem(const KernelRequest& r, size_t x, const Layout& layout) {
  const bool act = &r.op == &ops::batch_norm_act_train_op || &r.op == &ops::batch_norm_act_grad_op;
  Problem p{*Planes::of(r.in[x].shape, layout), 0, Act::none, false, std::max(1, r.threads)};
  if (act) {
    const auto& params = r.params.as<ops::NormActParams>();
    p.epsilon = params.epsilon;
    p.act = params.activation == "relu" ? Act::relu : params.activation == "silu" ? Act::silu : Act::none;
    p.residual = params.residual;
  } else {
    p.epsilon = r.params.as<ops::NormParams>().epsilon;
  }
  return p;
}

// The constants of block b; padding channels get zeros, and so stay zero.
Forward forward_of(const Problem& p, int64_t b, const float* gamma, const float* beta,
                   auto&& mean_of, auto&& variance_of) {
  Forward f{};
  for (int k = 0; k < p.planes.block; ++k) {
    const int64_t c = b * p.planes.block + k;
    if (c >= p.planes.channels) break;
    const double mean = mean_of(c), scale = gamma[c] / std::sqrt(variance_of(c) + p.epsilon);
    const double rounding = mean - double(float(mean));
    p.repeat(k, f.mean, float(mean));
    p.repeat(k, f.scale, float(scale));
    p.repeat(k, f.shift, float(beta[c] - rounding * scale));
  }
  return f;
}

class Train : public PreparedKernel {
 public:
  explicit Train(const Problem& p) : p_(p) {}
  void run(const void* const* in, void* const* out, void* workspace) const override {
    const auto *x = static_cast<const float*>(in[0]), *gamma = static_cast<const float*>(in[1]),
               *beta = static_cast<const float*>(in[2]),
               *residual = p_.residual ? static_cast<const float*>(in[3]) : nullptr;
    auto *y = static_cast<float*>(out[0]), *mean = static_cast<float*>(out[1]),
         *variance = static_cast<float*>(out[2]);
    const Planes& planes = p_.planes;
    Partial* partials = p_.partials(workspace);
    auto* constants = p_.constants<Forward>(workspace);
    for (int64_t b = 0; b < planes.blocks; ++b) constants[b].mean = pivot(x, b);
    over_blocks(
        planes, p_.threads,
        [&](int64_t i, int64_t b) {
          Partial& part = partials[b * planes.n + i];
          HWY_DYNAMIC_DISPATCH(PlaneSums)
          (x + planes.at(i, b), constants[b].mean, planes.plane(), part.first, part.second);
        },
        [&](int64_t b) {
          double sum[kLanes], square[kLanes];
          fold(planes, partials + b * planes.n, sum, square);
          for (int k = 0; k < planes.block; ++k) {
            sum[k] /= p_.count();
            square[k] = std::max(0.0, square[k] / p_.count() - sum[k] * sum[k]);
            sum[k] += constants[b].mean[size_t(k)];
            if (const int64_t c = b * planes.block + k; c < planes.channels)
              mean[c] = float(sum[k]), variance[c] = float(square[k]);
          }
          constants[b] = forward_of(
              p_, b, gamma, beta, [&](int64_t c) { return sum[c % planes.block]; },
              [&](int64_t c) { return square[c % planes.block]; });
        },
        [&](int64_t i, int64_t b) {
          const int64_t at = planes.at(i, b);
          HWY_DYNAMIC_DISPATCH(PlaneForward)
          (x + at, residual ? residual + at : nullptr, p_.act, y + at, constants[b],
           planes.plane());
        });
  }

 private:
  // The first value of every channel of block b.
  Lanes pivot(const float* x, int64_t b) const {
    Lanes lanes{};
    for (int k = 0; k < p_.planes.block && p_.planes.n * p_.planes.plane() > 0; ++k)
      p_.repeat(k, lanes, x[p_.planes.at(0, b) + k]);
    return lanes;
  }
  Problem p_;
};

class Infer : public PreparedKernel {
 public:
  explicit Infer(const Problem& p) : p_(p) {}
  void run(const void* const* in, void* const* out, void* workspace) const override {
    const auto at = [&](size_t k) { return static_cast<const float*>(in[k]); };
    const Planes& planes = p_.planes;
    auto* constants = static_cast<Forward*>(workspace);
    for (int64_t b = 0; b < planes.blocks; ++b)
      constants[b] = forward_of(
          p_, b, at(1), at(2), [&](int64_t c) { return double(at(3)[c]); },
          [&](int64_t c) { return double(at(4)[c]); });
    parallel_for(planes.n * planes.blocks, 1 + (1 << 14) / std::max<int64_t>(1, planes.plane()),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t k = begin; k < end; ++k)
                     HWY_DYNAMIC_DISPATCH(PlaneForward)
                     (at(0) + k * planes.plane(), nullptr, Act::none,
                      static_cast<float*>(out[0]) + k * planes.plane(),
                      constants[k % planes.blocks], planes.plane());
                 });
  }

 private:
  Problem p_;
};

class Grad : public PreparedKernel {
 public:
  Grad(const Problem& p, bool joined) : p_(p), joined_(joined) {}
  void run(const void* const* in, void* const* out, void* workspace) const override {
    const auto at = [&](size_t k) { return static_cast<const float*>(in[k]); };
    const size_t first = joined_ ? 2 : 1;
    const float *dy = at(0), *y = p_.act == Act::relu ? at(1) : nullptr, *x = at(first),
                *gamma = at(first + 1), *mean = at(first + 2), *variance = at(first + 3),
                *beta = p_.act == Act::silu ? at(first + 4) : nullptr;
    auto *dx = static_cast<float*>(out[0]), *dgamma = static_cast<float*>(out[1]),
         *dbeta = static_cast<float*>(out[2]),
         *dr = p_.residual ? static_cast<float*>(out[3]) : nullptr;
    const Planes& planes = p_.planes;
    Partial* partials = p_.partials(workspace);
    auto* constants = p_.constants<Backward>(workspace);
    for (int64_t b = 0; b < planes.blocks; ++b) {
      constants[b] = {};
      if (beta)
        constants[b].norm = forward_of(
            p_, b, gamma, beta, [&](int64_t c) { return double(mean[c]); },
            [&](int64_t c) { return double(variance[c]); });
      for (int k = 0; k < planes.block; ++k)
        if (const int64_t c = b * planes.block + k; c < planes.channels)
          p_.repeat(k, constants[b].norm.mean, mean[c]);
    }
    over_blocks(
        planes, p_.threads,
        [&](int64_t i, int64_t b) {
          Partial& part = partials[b * planes.n + i];
          const int64_t k = planes.at(i, b);
          HWY_DYNAMIC_DISPATCH(PlaneGradSums)
          (dy + k, y ? y + k : nullptr, x + k, p_.act, constants[b].norm, planes.plane(), part.first,
           part.second);
        },
        [&](int64_t b) {
          double sum[kLanes], product[kLanes];
          fold(planes, partials + b * planes.n, sum, product);
          Gradient& g = constants[b].gradient;
          for (int k = 0; k < planes.block; ++k) {
            const int64_t c = b * planes.block + k;
            if (c >= planes.channels) break;
            const double inverse = 1 / std::sqrt(variance[c] + p_.epsilon),
                         scale = gamma[c] * inverse;
            dgamma[c] = float(product[k] * inverse);
            dbeta[c] = float(sum[k]);
            p_.repeat(k, g.dy_scale, float(scale));
            p_.repeat(k, g.x_scale, float(-scale * inverse * inverse * product[k] / p_.count()));
            p_.repeat(k, g.shift, float(-scale * sum[k] / p_.count()));
          }
        },
        [&](int64_t i, int64_t b) {
          const int64_t k = planes.at(i, b);
          HWY_DYNAMIC_DISPATCH(PlaneGradient)
          (dy + k, y ? y + k : nullptr, x + k, dx + k, dr ? dr + k : nullptr, p_.act,
           constants[b].norm, constants[b].gradient, planes.plane());
        });
  }

 private:
  Problem p_;
  bool joined_;
};

bool fits(const Shape& shape, const Layout& layout) {
  const auto planes = Planes::of(shape, layout);
  return planes && kLanes % planes->block == 0;
}

// x_at: which input is x. `work`: what the workspace holds, given the problem.
OfferResult offer_planes(const KernelRequest& r, size_t x_at, size_t (*work)(const Problem&),
                         std::vector<std::pair<int, int>> in_place) {
  if (std::string why = unless_f32(r); !why.empty()) return Refusal{std::move(why)};
  const Shape& shape = r.in[x_at].shape;
  const Layout layout = common_layout(r, shape, [&](const Layout& l) { return fits(shape, l); });
  KernelOffer offer = offer_layout(r, shape, layout);
  offer.workspace_bytes = work(problem(r, x_at, layout));
  offer.in_place = std::move(in_place);
  return offer;
}

OfferResult offer_train(const KernelRequest& r) {
  std::vector<std::pair<int, int>> in_place{{0, 0}};
  if (r.in.size() == 4) in_place.push_back({3, 0});
  return offer_planes(
      r, 0, [](const Problem& p) { return p.workspace_bytes<Forward>(); }, std::move(in_place));
}
OfferResult offer_infer(const KernelRequest& r) {
  return offer_planes(
      r, 0, [](const Problem& p) { return size_t(p.planes.blocks) * sizeof(Forward); }, {{0, 0}});
}
size_t grad_workspace(const Problem& p) { return p.workspace_bytes<Backward>(); }
OfferResult offer_grad(const KernelRequest& r) {
  return offer_planes(r, 1, grad_workspace, {{0, 0}, {1, 0}});
}
OfferResult offer_joined_grad(const KernelRequest& r) {
  std::vector<std::pair<int, int>> in_place{{0, 0}, {1, 0}, {2, 0}};
  if (r.out.size() == 4) in_place.insert(in_place.end(), {{0, 3}, {1, 3}, {2, 3}});
  return offer_planes(r, 2, grad_workspace, std::move(in_place));
}

using Prepared = std::unique_ptr<PreparedKernel>;
Prepared prepare_train(const KernelRequest& r, const KernelOffer& o) {
  return std::make_unique<Train>(problem(r, 0, o.in[0]));
}
Prepared prepare_infer(const KernelRequest& r, const KernelOffer& o) {
  return std::make_unique<Infer>(problem(r, 0, o.in[0]));
}
Prepared prepare_grad(const KernelRequest& r, const KernelOffer& o) {
  return std::make_unique<Grad>(problem(r, 1, o.in[1]), false);
}
Prepared prepare_joined_grad(const KernelRequest& r, const KernelOffer& o) {
  return std::make_unique<Grad>(problem(r, 2, o.in[2]), true);
}

}  // namespace

extern const Kernel batch_norm_train_kernel{&ops::batch_norm_train_op, "cpu.planes", offer_train,
                                            prepare_train};
extern const Kernel batch_norm_grad_kernel{&ops::batch_norm_grad_op, "cpu.planes", offer_grad,
                                           prepare_grad};
extern const Kernel batch_norm_infer_kernel{&ops::batch_norm_infer_op, "cpu.planes", offer_infer,
                                            prepare_infer};
extern const Kernel batch_norm_act_train_kernel{&ops::batch_norm_act_train_op, "cpu.planes",
                                                offer_train, prepare_train};
extern const Kernel batch_norm_act_grad_kernel{&ops::batch_norm_act_grad_op, "cpu.planes",
                                               offer_joined_grad, prepare_joined_grad};

}  // namespace cairn::cpu
#endif
