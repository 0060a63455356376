// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/reduce/exp_rows.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/reduce/exp_rows.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first
#include "backends/cpu/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace cairn::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using F = hn::ScalableTag<float>;

// Lanes 0 … count−1 of x, `fill` in the others.
HWY_INLINE hn::Vec<F> LoadFirst(F d, const float* x, size_t count, float fill) {
  HWY_ALIGN float lanes[hn::MaxLanes(F())];
  for (size_t k = 0; k < hn::Lanes(d); ++k) lanes[k] = k < count ? x[k] : fill;
  return hn::Load(d, lanes);
}
HWY_INLINE void StoreFirst(F d, hn::Vec<F> v, size_t count, float* y) {
  HWY_ALIGN float lanes[hn::MaxLanes(F())];
  hn::Store(v, d, lanes);
  for (size_t k = 0; k < count; ++k) y[k] = lanes[k];
}

ExpSum ExpSumOf(const float* x, size_t count, float* y) {
  const F d;
  const size_t lanes = hn::Lanes(d), whole = count / lanes * lanes, rest = count - whole;
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  auto top_lanes = hn::Set(d, lowest);
  for (size_t i = 0; i < whole; i += lanes) top_lanes = hn::Max(top_lanes, hn::LoadU(d, x + i));
  if (rest) top_lanes = hn::Max(top_lanes, LoadFirst(d, x + whole, rest, lowest));
  const auto top = hn::MaxOfLanes(d, top_lanes);
  auto total = hn::Zero(d);
  for (size_t i = 0; i < whole; i += lanes) {
    const auto e = ExpF32(d, hn::Sub(hn::LoadU(d, x + i), top));
    if (y) hn::StoreU(e, d, y + i);
    total = hn::Add(total, e);
  }
  if (rest) {
    const auto e = ExpF32(d, hn::Sub(LoadFirst(d, x + whole, rest, lowest), top));
    if (y) StoreFirst(d, e, rest, y + whole);
    total = hn::Add(total, hn::IfThenElseZero(hn::FirstN(d, rest), e));
  }
  return {hn::GetLane(top), hn::GetLane(hn::SumOfLanes(d, total))};
}

void ScaledExp(const float* x, size_t count, float shift, float factor, float* y) {
  const F d;
  const size_t lanes = hn::Lanes(d), whole = count / lanes * lanes, rest = count - whole;
  const auto s = hn::Set(d, shift), f = hn::Set(d, factor);
  for (size_t i = 0; i < whole; i += lanes)
    hn::StoreU(hn::Mul(f, ExpF32(d, hn::Sub(hn::LoadU(d, x + i), s))), d, y + i);
  if (rest)
    StoreFirst(d, hn::Mul(f, ExpF32(d, hn::Sub(LoadFirst(d, x + whole, rest, 0), s))), rest,
               y + whole);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace cairn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn::cpu {
namespace {
HWY_EXPORT(ExpSumOf);
HWY_EXPORT(ScaledExp);
}  // namespace

ExpSum exp_sum(const float* x, int64_t count, float* y) {
  return HWY_DYNAMIC_DISPATCH(ExpSumOf)(x, size_t(count), y);
}
void scaled_exp(const float* x, int64_t count, float shift, float factor, float* y) {
  HWY_DYNAMIC_DISPATCH(ScaledExp)(x, size_t(count), shift, factor, y);
}

}  // namespace cairn::cpu
#endif
