// SPDX-License-Identifier: Apache-2.0
// Vector functions of f32 for Highway kernels (a per-target header): right for every input,
// infinities and NaN included, within about 4 units in the last place.
#if defined(CAIRN_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CAIRN_CPU_MATH_INL_H_
#undef CAIRN_CPU_MATH_INL_H_
#else
#define CAIRN_CPU_MATH_INL_H_
#endif

#include <cmath>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace cairn::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V>
HWY_INLINE V ExpF32(D d, V x) {
  const V y = hn::Exp(d, hn::Min(x, hn::Set(d, 104.0f)));  // beyond 104 it is infinite anyway
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

template <class D, class V>
HWY_INLINE V LogF32(D d, V x) {
  const V zero = hn::Zero(d), infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const V nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  const V special =
      hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), hn::IfThenElse(hn::Lt(x, zero), nan, x));
  return hn::IfThenElse(hn::And(hn::Gt(x, zero), hn::Lt(x, infinity)), hn::Log(d, x), special);
}

template <class D, class V>
HWY_INLINE V TanhF32(D d, V x) {
  return hn::Tanh(d, x);
}

// e^x − 1 for x ≤ 0.
template <class D, class V>
HWY_INLINE V Expm1OfNegative(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Expm1(d, x));
}

template <class D, class V>
HWY_INLINE V SigmoidF32(D d, V x) {
  const V one = hn::Set(d, 1.0f), e = ExpF32(d, hn::Neg(hn::Abs(x)));  // never overflows
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

template <class D, class V>
HWY_INLINE V SiluF32(D d, V x) {
  return hn::Mul(x, SigmoidF32(d, x));
}

// dy σ(x) (1 + x (1 − σ(x)))
template <class D, class V>
HWY_INLINE V SiluGradF32(D d, V dy, V x) {
  const V one = hn::Set(d, 1.0f), s = SigmoidF32(d, x);
  return hn::Mul(dy, hn::Mul(s, hn::Add(one, hn::Mul(x, hn::Sub(one, s)))));
}

template <class D, class V>
HWY_INLINE V SoftplusF32(D d, V x) {
  const V tail = hn::Log1p(d, ExpF32(d, hn::Neg(hn::Abs(x))));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Add(hn::Max(x, hn::Zero(d)), tail));
}

// erfc(t) = e^(−t²) z P(z) with z = 1 / (1 + 0.4 t), for t = √scale u ≥ 0. P is a minimax fit over
// 0 … 10.5 (relative error 9e-9). t² is worked out from u in two parts: the exponential would
// magnify its rounding.
template <class D, class V>
HWY_INLINE V ErfcOfPositive(D d, V t, V u, float scale) {
  const V z = hn::Div(hn::Set(d, 1.0f), hn::MulAdd(t, hn::Set(d, 0.4f), hn::Set(d, 1.0f)));
  V p = hn::Set(d, -0.0286367543f);
  p = hn::MulAdd(p, z, hn::Set(d, 0.1928216338f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.4866282292f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.5312266103f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.2709233000f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.2648739800f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.1321563655f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.2143907563f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.2250152711f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.2257036755f));
  const hn::RebindToUnsigned<D> du;
  u = hn::Min(u, hn::Set(d, 16.0f));  // beyond, the result is 0
  const V square = hn::Mul(u, u),
          high = hn::BitCast(d, hn::And(hn::BitCast(du, u), hn::Set(du, 0xFFFFF000u)));
  const V rest =
      hn::Add(hn::Sub(hn::Mul(high, high), square), hn::Mul(hn::Sub(u, high), hn::Add(u, high)));
  const V e = hn::Exp(d, hn::Mul(square, hn::Set(d, -scale)));
  return hn::Mul(hn::NegMulAdd(e, hn::Mul(rest, hn::Set(d, scale)), e), hn::Mul(z, p));
}

template <class D, class V>
HWY_INLINE V ErfF32(D d, V x) {
  const V a = hn::Abs(x), s = hn::Mul(x, x);
  V p = hn::Set(d, 7.853907300159335e-05f);  // minimax for erf(x)/x over −1 … 1
  p = hn::MulAdd(p, s, hn::Set(d, -0.0008010208839550614f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.005188329610973597f));
  p = hn::MulAdd(p, s, hn::Set(d, -0.026853812858462334f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.1128358542919159f));
  p = hn::MulAdd(p, s, hn::Set(d, -0.3761262595653534f));
  p = hn::MulAdd(p, s, hn::Set(d, 0.12837916709f));
  const V near = hn::MulAdd(p, x, x);
  const V far = hn::CopySign(hn::Sub(hn::Set(d, 1.0f), ErfcOfPositive(d, a, a, 1.0f)), x);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenElse(hn::Gt(a, hn::Set(d, 1.0f)), far, near));
}

// Φ(x), the distribution function of the standard normal: accurate in both tails.
template <class D, class V>
HWY_INLINE V NormalCdfF32(D d, V x) {
  const V a = hn::Abs(x);
  const V tail = ErfcOfPositive(d, hn::Mul(a, hn::Set(d, 0.70710678118f)), a, 0.5f);
  const V half_tail = hn::Mul(hn::Set(d, 0.5f), tail);
  const V y =
      hn::IfThenElse(hn::Lt(x, hn::Zero(d)), half_tail, hn::Sub(hn::Set(d, 1.0f), half_tail));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// Highway reduces the argument well up to 39000; beyond (and for infinities) the C library does it.
template <class D, class V, class Vector, class Scalar>
HWY_INLINE V Periodic(D d, V x, Vector&& vector, Scalar&& scalar) {
  if (HWY_LIKELY(hn::AllTrue(d, hn::Le(hn::Abs(x), hn::Set(d, 39000.0f))))) return vector(x);
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(x, d, lanes);
  for (size_t k = 0; k < hn::Lanes(d); ++k) lanes[k] = scalar(lanes[k]);
  return hn::Load(d, lanes);
}
template <class D, class V>
HWY_INLINE V SinF32(D d, V x) {
  return Periodic(
      d, x, [d](V v) HWY_ATTR { return hn::Sin(d, v); }, [](float v) { return std::sin(v); });
}
template <class D, class V>
HWY_INLINE V CosF32(D d, V x) {
  return Periodic(
      d, x, [d](V v) HWY_ATTR { return hn::Cos(d, v); }, [](float v) { return std::cos(v); });
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn::cpu
HWY_AFTER_NAMESPACE();

#endif
