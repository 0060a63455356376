// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/elementwise/strip_ops.h"

#include <array>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise/strip_ops.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first
#include "backends/cpu/math-inl.h"
#include "core/strided.h"

// Loops whose iterations are independent (out may be an operand, element on element): no alias
// checks.
#if defined(__clang__)
#define CAIRN_FOR _Pragma("clang loop vectorize(assume_safety)") for
#else
#define CAIRN_FOR _Pragma("GCC ivdep") for
#endif

HWY_BEFORE_NAMESPACE();
namespace cairn::cpu {
namespace HWY_NAMESPACE {

// ---- floats, by Highway ----

template <class T, class F>
void Unary(const StripArgs& a, int64_t n) {
  const hn::ScalableTag<T> d;
  const T *x = static_cast<const T*>(a.in[0]), p = T(a.p[0]), q = T(a.p[1]);
  T* out = static_cast<T*>(a.out);
  for (int64_t i = 0; i < n; i += int64_t(hn::Lanes(d)))
    hn::StoreU(F::Run(d, hn::LoadU(d, x + i), p, q), d, out + i);
}
// Operand k of a strip: a vector, or one element throughout where bit k of kScalars is set.
template <int k, int kScalars, class T>
class Operand {
  using D = hn::ScalableTag<T>;

 public:
  explicit Operand(const StripArgs& a)
      : x_(static_cast<const T*>(a.in[k])), all_(hn::Set(D(), *x_)) {}
  HWY_INLINE hn::Vec<D> operator[](int64_t i) const {
    if constexpr (kScalars >> k & 1)
      return all_;
    else
      return hn::LoadU(D(), x_ + i);
  }

 private:
  const T* x_;
  hn::Vec<D> all_;
};
template <class T, class F, int kScalars>
void Binary(const StripArgs& a, int64_t n) {
  const hn::ScalableTag<T> d;
  const Operand<0, kScalars, T> x(a);
  const Operand<1, kScalars, T> y(a);
  T* out = static_cast<T*>(a.out);
  for (int64_t i = 0; i < n; i += int64_t(hn::Lanes(d)))
    hn::StoreU(F::Run(d, x[i], y[i]), d, out + i);
}
template <class T, class F, int kScalars>
void Ternary(const StripArgs& a, int64_t n) {
  const hn::ScalableTag<T> d;
  const Operand<0, kScalars, T> x(a);
  const Operand<1, kScalars, T> y(a);
  const Operand<2, kScalars, T> z(a);
  T* out = static_cast<T*>(a.out);
  for (int64_t i = 0; i < n; i += int64_t(hn::Lanes(d)))
    hn::StoreU(F::Run(d, x[i], y[i], z[i]), d, out + i);
}
// x compare y ? b : c
template <class T, class F, int kScalars>
void SelectIf(const StripArgs& a, int64_t n) {
  const hn::ScalableTag<T> d;
  const Operand<0, kScalars, T> x(a);
  const Operand<1, kScalars, T> y(a);
  const Operand<2, kScalars, T> b(a);
  const Operand<3, kScalars, T> c(a);
  T* out = static_cast<T*>(a.out);
  for (int64_t i = 0; i < n; i += int64_t(hn::Lanes(d)))
    hn::StoreU(hn::IfThenElse(F::Run(x[i], y[i]), b[i], c[i]), d, out + i);
}
// The variant for the scalars that are worth one; f32 only.
template <class T, class F>
StripCode PickBinary(int scalars) {
  if constexpr (std::is_same_v<T, float>) {
    if (scalars & 1) return {&Binary<T, F, 1>, 1};
    if (scalars & 2) return {&Binary<T, F, 2>, 2};
  }
  return &Binary<T, F, 0>;
}
template <class T, class F>
StripCode PickTernary(int scalars) {
  if constexpr (std::is_same_v<T, float>) {
    constexpr StripFn variants[] = {&Ternary<T, F, 0>, &Ternary<T, F, 1>, &Ternary<T, F, 2>,
                                    &Ternary<T, F, 3>, &Ternary<T, F, 4>, &Ternary<T, F, 5>,
                                    &Ternary<T, F, 6>};
    scalars = scalars == 7 ? 3 : scalars & 7;
    return {variants[scalars], scalars};
  }
  return &Ternary<T, F, 0>;
}
template <class T, class F>
StripCode PickSelectIf(int scalars) {
  if constexpr (std::is_same_v<T, float>) {
    if ((scalars & 10) == 10) return {&SelectIf<T, F, 10>, 10};
    if (scalars & 2) return {&SelectIf<T, F, 2>, 2};
    if (scalars & 8) return {&SelectIf<T, F, 8>, 8};
  }
  return &SelectIf<T, F, 0>;
}

#define CAIRN_UNARY(name, ...)                    \
  struct name {                                   \
    template <class D, class V, class T>          \
    static HWY_INLINE V Run(D d, V x, T p, T q) { \
      (void)d, (void)p, (void)q;                  \
      return __VA_ARGS__;                         \
    }                                             \
  };
#define CAIRN_BINARY(name, ...)              \
  struct name {                              \
    template <class D, class V>              \
    static HWY_INLINE V Run(D d, V x, V y) { \
      (void)d;                               \
      return __VA_ARGS__;                    \
    }                                        \
  };
#define CAIRN_TERNARY(name, ...)                \
  struct name {                                 \
    template <class D, class V>                 \
    static HWY_INLINE V Run(D, V x, V y, V z) { \
      return __VA_ARGS__;                       \
    }                                           \
  };
#define CAIRN_COMPARE(name, ...)           \
  struct name {                            \
    template <class V>                     \
    static HWY_INLINE auto Run(V x, V y) { \
      return __VA_ARGS__;                  \
    }                                      \
  };

CAIRN_BINARY(AddOp, hn::Add(x, y))
CAIRN_BINARY(SubOp, hn::Sub(x, y))
CAIRN_BINARY(MulOp, hn::Mul(x, y))
CAIRN_BINARY(DivOp, hn::Div(x, y))
CAIRN_BINARY(MaximumOp, hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::Gt(x, y)), x, y))
CAIRN_BINARY(MinimumOp, hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::Lt(x, y)), x, y))
CAIRN_BINARY(SiluGradOp, SiluGradF32(d, x, y))
CAIRN_BINARY(ReluGradOp, hn::IfThenElseZero(hn::Gt(y, hn::Zero(d)), x))
CAIRN_TERNARY(MulAddOp, hn::Add(hn::Mul(x, y), z))  // not hn::MulAdd, which may round once
CAIRN_TERNARY(MulSubOp, hn::Sub(hn::Mul(x, y), z))
CAIRN_TERNARY(AddMulOp, hn::Add(z, hn::Mul(x, y)))
CAIRN_TERNARY(SubMulOp, hn::Sub(z, hn::Mul(x, y)))
CAIRN_COMPARE(EqualOp, hn::Eq(x, y))
CAIRN_COMPARE(NotEqualOp, hn::Ne(x, y))
CAIRN_COMPARE(LessOp, hn::Lt(x, y))
CAIRN_COMPARE(LessEqualOp, hn::Le(x, y))
CAIRN_COMPARE(GreaterOp, hn::Gt(x, y))
CAIRN_COMPARE(GreaterEqualOp, hn::Ge(x, y))
CAIRN_UNARY(NegOp, hn::Neg(x))
CAIRN_UNARY(AbsOp, hn::Abs(x))
CAIRN_UNARY(SignOp, hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Set(d, T(1)),
                                   hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, T(-1)), x)))
CAIRN_UNARY(SquareOp, hn::Mul(x, x))
CAIRN_UNARY(SqrtOp, hn::Sqrt(x))
CAIRN_UNARY(RsqrtOp, hn::Div(hn::Set(d, T(1)), hn::Sqrt(x)))
CAIRN_UNARY(ReciprocalOp, hn::Div(hn::Set(d, T(1)), x))
CAIRN_UNARY(FloorOp, hn::Floor(x))
CAIRN_UNARY(CeilOp, hn::Ceil(x))
CAIRN_UNARY(RoundOp, hn::Round(x))
CAIRN_UNARY(ReluOp, hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x))  // NaN stays NaN
CAIRN_UNARY(LeakyReluOp, hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(x, hn::Set(d, p))))
CAIRN_UNARY(ClampOp, hn::IfThenElse(hn::Lt(x, hn::Set(d, p)), hn::Set(d, p),
                                    hn::IfThenElse(hn::Gt(x, hn::Set(d, q)), hn::Set(d, q), x)))
CAIRN_UNARY(SixthOp, hn::Add(hn::Div(x, hn::Set(d, T(6))), hn::Set(d, T(0.5))))
CAIRN_UNARY(HardsigmoidOp,
            hn::IfThenZeroElse(hn::Le(x, hn::Set(d, T(-3))),
                               hn::IfThenElse(hn::Ge(x, hn::Set(d, T(3))), hn::Set(d, T(1)),
                                              SixthOp::Run(d, x, p, q))))
CAIRN_UNARY(HardswishOp, hn::IfThenZeroElse(hn::Le(x, hn::Set(d, T(-3))),
                                            hn::IfThenElse(hn::Ge(x, hn::Set(d, T(3))), x,
                                                           hn::Mul(x, SixthOp::Run(d, x, p, q)))))
CAIRN_UNARY(ExpOp, ExpF32(d, x))
CAIRN_UNARY(LogOp, LogF32(d, x))
CAIRN_UNARY(SinOp, SinF32(d, x))
CAIRN_UNARY(CosOp, CosF32(d, x))
CAIRN_UNARY(TanhOp, TanhF32(d, x))
CAIRN_UNARY(ErfOp, ErfF32(d, x))
CAIRN_UNARY(SigmoidOp, SigmoidF32(d, x))
CAIRN_UNARY(SoftplusOp, SoftplusF32(d, x))
CAIRN_UNARY(GeluOp, hn::Mul(x, NormalCdfF32(d, x)))
CAIRN_UNARY(SiluOp, SiluF32(d, x))
CAIRN_UNARY(EluOp,
            hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x,
                           hn::Mul(hn::Set(d, p),
                                   Expm1OfNegative(d,
                                                   hn::IfThenZeroElse(hn::Gt(x, hn::Zero(d)), x)))))

// ---- what the C library does, one by one: f64 (its results are the reference's), and pow ----

template <class T, class F>
void Each(const StripArgs& a, int64_t n) {
  auto* x = static_cast<const T*>(a.in[0]);
  auto* out = static_cast<T*>(a.out);
  for (int64_t i = 0; i < n; ++i) out[i] = F::Run(x[i], a.p[0]);
}
template <class T>
void Pow(const StripArgs& a, int64_t n) {
  auto *x = static_cast<const T*>(a.in[0]), *y = static_cast<const T*>(a.in[1]);
  auto* out = static_cast<T*>(a.out);
  for (int64_t i = 0; i < n; ++i) out[i] = std::pow(x[i], y[i]);
}
#define CAIRN_EACH(name, ...)                                                      \
  struct name {                                                                    \
    static double Run(double x, [[maybe_unused]] double p) { return __VA_ARGS__; } \
  };
inline double Logistic(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
CAIRN_EACH(ExpEach, std::exp(x))
CAIRN_EACH(LogEach, std::log(x))
CAIRN_EACH(SinEach, std::sin(x))
CAIRN_EACH(CosEach, std::cos(x))
CAIRN_EACH(TanhEach, std::tanh(x))
CAIRN_EACH(ErfEach, std::erf(x))
CAIRN_EACH(SigmoidEach, Logistic(x))
CAIRN_EACH(SoftplusEach, std::isnan(x) ? x : std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))))
CAIRN_EACH(GeluEach, 0.5 * x * std::erfc(-x * 1.41421356237309504880 / 2))
CAIRN_EACH(SiluEach, x* Logistic(x))
CAIRN_EACH(EluEach, x > 0 ? x : p * std::expm1(x))

// ---- every other dtype: loops that the compiler makes vectors of ----

// Arithmetic is done in 64 bits and wraps, as the reference does.
template <class T, class F>
void IntUnary(const StripArgs& a, int64_t n) {
  auto* x = static_cast<const T*>(a.in[0]);
  auto* out = static_cast<T*>(a.out);
  CAIRN_FOR(int64_t i = 0; i < n; ++i) out[i] = T(F::Run(int64_t(x[i])));
}
template <class T, class F>
void IntBinary(const StripArgs& a, int64_t n) {
  auto *x = static_cast<const T*>(a.in[0]), *y = static_cast<const T*>(a.in[1]);
  auto* out = static_cast<T*>(a.out);
  CAIRN_FOR(int64_t i = 0; i < n; ++i) out[i] = T(F::Run(int64_t(x[i]), int64_t(y[i])));
}
template <class T>
void IntClamp(const StripArgs& a, int64_t n) {
  auto* x = static_cast<const T*>(a.in[0]);
  auto* out = static_cast<T*>(a.out);
  const int64_t low = saturate<int64_t>(std::ceil(a.p[0])),
                high = saturate<int64_t>(std::floor(a.p[1]));
  for (int64_t i = 0; i < n; ++i)
    out[i] = T(int64_t(x[i]) < low ? low : int64_t(x[i]) > high ? high : int64_t(x[i]));
}
#define CAIRN_INT_UNARY(name, ...)                                            \
  struct name {                                                               \
    static HWY_INLINE int64_t Run(int64_t x) { return int64_t(__VA_ARGS__); } \
  };
#define CAIRN_INT_BINARY(name, ...)                                                      \
  struct name {                                                                          \
    static HWY_INLINE int64_t Run(int64_t x, int64_t y) { return int64_t(__VA_ARGS__); } \
  };
CAIRN_INT_BINARY(AddInt, uint64_t(x) + uint64_t(y))
CAIRN_INT_BINARY(SubInt, uint64_t(x) - uint64_t(y))
CAIRN_INT_BINARY(MulInt, uint64_t(x) * uint64_t(y))
CAIRN_INT_BINARY(DivInt, y == 0 ? 0 : y == -1 ? int64_t(-uint64_t(x)) : x / y)
CAIRN_INT_BINARY(MaximumInt, x > y ? x : y)
CAIRN_INT_BINARY(MinimumInt, x < y ? x : y)
CAIRN_INT_BINARY(AndInt, x& y)
CAIRN_INT_BINARY(OrInt, x | y)
CAIRN_INT_UNARY(NotInt, x ^ 1)
CAIRN_INT_UNARY(NegInt, -uint64_t(x))
CAIRN_INT_UNARY(AbsInt, x < 0 ? -uint64_t(x) : uint64_t(x))
CAIRN_INT_UNARY(SignInt, int(x > 0) - int(x < 0))
CAIRN_INT_UNARY(SquareInt, uint64_t(x) * uint64_t(x))
CAIRN_INT_UNARY(ReluInt, x < 0 ? 0 : x)

template <class T, class F, bool kScalar>
void CompareLoop(const StripArgs& a, int64_t n) {
  auto *x = static_cast<const T*>(a.in[0]), *y = static_cast<const T*>(a.in[1]);
  auto* out = static_cast<uint8_t*>(a.out);
  const T one = *y;
  CAIRN_FOR(int64_t i = 0; i < n; ++i) out[i] = F::Run(x[i], kScalar ? one : y[i]);
}
template <class T, class F>
StripCode Compare(int scalars) {
  if constexpr (std::is_same_v<T, float>)
    if (scalars & 2) return {&CompareLoop<T, F, true>, 2};
  return &CompareLoop<T, F, false>;
}
#define CAIRN_SCALAR_COMPARE(name, sign)   \
  struct name {                            \
    template <class T>                     \
    static HWY_INLINE bool Run(T x, T y) { \
      return x sign y;                     \
    }                                      \
  };
CAIRN_SCALAR_COMPARE(IsEqual, ==)
CAIRN_SCALAR_COMPARE(IsNotEqual, !=)
CAIRN_SCALAR_COMPARE(IsLess, <)
CAIRN_SCALAR_COMPARE(IsLessEqual, <=)
CAIRN_SCALAR_COMPARE(IsGreater, >)
CAIRN_SCALAR_COMPARE(IsGreaterEqual, >=)

template <class T, bool kScalar>
void SelectLoop(const StripArgs& a, int64_t n) {
  auto* c = static_cast<const uint8_t*>(a.in[0]);
  auto *x = static_cast<const T*>(a.in[1]), *y = static_cast<const T*>(a.in[2]);
  auto* out = static_cast<T*>(a.out);
  const T one = *y;
  CAIRN_FOR(int64_t i = 0; i < n; ++i) {
    const T then = x[i], otherwise = kScalar ? one : y[i];
    out[i] = c[i] ? then : otherwise;
  }
}
template <size_t size>
void Copy(const StripArgs& a, int64_t n) {
  if (a.out != a.in[0]) std::memcpy(a.out, a.in[0], size_t(n) * size);
}

template <class From, class To>
void Cast(const StripArgs& a, int64_t n) {
  using Out = std::conditional_t<std::is_same_v<To, bool>, uint8_t, To>;
  using In = std::conditional_t<std::is_same_v<From, bool>, uint8_t, From>;
  auto* x = static_cast<const In*>(a.in[0]);
  auto* out = static_cast<Out*>(a.out);
  CAIRN_FOR(int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<To, bool>)
      out[i] = x[i] != 0;
    else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>)
      out[i] = saturate<To>(double(x[i]));
    else
      out[i] = Out(x[i]);
  }
}

// ---- tables ----

template <class T>
StripCode Float(StripOp op, int scalars) {
  constexpr bool single = std::is_same_v<T, float>;
#define CAIRN_MATH(name, Name)    \
  case StripOp::name:             \
    if constexpr (single)         \
      return &Unary<T, Name##Op>; \
    else                          \
      return &Each<T, Name##Each>;
  switch (op) {
    case StripOp::add:
      return PickBinary<T, AddOp>(scalars);
    case StripOp::sub:
      return PickBinary<T, SubOp>(scalars);
    case StripOp::mul:
      return PickBinary<T, MulOp>(scalars);
    case StripOp::div:
      return PickBinary<T, DivOp>(scalars);
    case StripOp::pow:
      return &Pow<T>;
    case StripOp::maximum:
      return PickBinary<T, MaximumOp>(scalars);
    case StripOp::minimum:
      return PickBinary<T, MinimumOp>(scalars);
    case StripOp::relu_grad:
      return PickBinary<T, ReluGradOp>(scalars);
    case StripOp::silu_grad:
      if constexpr (single)
        return PickBinary<T, SiluGradOp>(scalars);
      else
        return nullptr;
    case StripOp::neg:
      return &Unary<T, NegOp>;
    case StripOp::abs:
      return &Unary<T, AbsOp>;
    case StripOp::sign:
      return &Unary<T, SignOp>;
    case StripOp::square:
      return &Unary<T, SquareOp>;
    case StripOp::sqrt:
      return &Unary<T, SqrtOp>;
    case StripOp::rsqrt:
      return &Unary<T, RsqrtOp>;
    case StripOp::reciprocal:
      return &Unary<T, ReciprocalOp>;
    case StripOp::floor:
      return &Unary<T, FloorOp>;
    case StripOp::ceil:
      return &Unary<T, CeilOp>;
    case StripOp::round:
      return &Unary<T, RoundOp>;
    case StripOp::hardsigmoid:
      return &Unary<T, HardsigmoidOp>;
    case StripOp::hardswish:
      return &Unary<T, HardswishOp>;
    case StripOp::relu:
      return &Unary<T, ReluOp>;
    case StripOp::leaky_relu:
      return &Unary<T, LeakyReluOp>;
    case StripOp::clamp:
      return &Unary<T, ClampOp>;
    case StripOp::mul_add:
      return PickTernary<T, MulAddOp>(scalars);
    case StripOp::mul_sub:
      return PickTernary<T, MulSubOp>(scalars);
    case StripOp::add_mul:
      return PickTernary<T, AddMulOp>(scalars);
    case StripOp::sub_mul:
      return PickTernary<T, SubMulOp>(scalars);
    case StripOp::select_equal:
      return PickSelectIf<T, EqualOp>(scalars);
    case StripOp::select_not_equal:
      return PickSelectIf<T, NotEqualOp>(scalars);
    case StripOp::select_less:
      return PickSelectIf<T, LessOp>(scalars);
    case StripOp::select_less_equal:
      return PickSelectIf<T, LessEqualOp>(scalars);
    case StripOp::select_greater:
      return PickSelectIf<T, GreaterOp>(scalars);
    case StripOp::select_greater_equal:
      return PickSelectIf<T, GreaterEqualOp>(scalars);
      CAIRN_MATH(exp, Exp)
      CAIRN_MATH(log, Log)
      CAIRN_MATH(sin, Sin)
      CAIRN_MATH(cos, Cos)
      CAIRN_MATH(tanh, Tanh)
      CAIRN_MATH(erf, Erf)
      CAIRN_MATH(sigmoid, Sigmoid)
      CAIRN_MATH(softplus, Softplus)
      CAIRN_MATH(gelu, Gelu)
      CAIRN_MATH(silu, Silu)
      CAIRN_MATH(elu, Elu)
    default:
      return nullptr;
  }
#undef CAIRN_MATH
}

template <class T>
StripFn Integer(StripOp op) {
  switch (op) {
    case StripOp::add:
      return &IntBinary<T, AddInt>;
    case StripOp::sub:
      return &IntBinary<T, SubInt>;
    case StripOp::mul:
      return &IntBinary<T, MulInt>;
    case StripOp::div:
      return &IntBinary<T, DivInt>;
    case StripOp::maximum:
      return &IntBinary<T, MaximumInt>;
    case StripOp::minimum:
      return &IntBinary<T, MinimumInt>;
    case StripOp::neg:
      return &IntUnary<T, NegInt>;
    case StripOp::abs:
      return &IntUnary<T, AbsInt>;
    case StripOp::sign:
      return &IntUnary<T, SignInt>;
    case StripOp::square:
      return &IntUnary<T, SquareInt>;
    case StripOp::relu:
      return &IntUnary<T, ReluInt>;
    case StripOp::clamp:
      return &IntClamp<T>;
    default:
      return nullptr;
  }
}

StripFn Logic(StripOp op) {
  switch (op) {
    case StripOp::logical_and:
      return &IntBinary<uint8_t, AndInt>;
    case StripOp::logical_or:
      return &IntBinary<uint8_t, OrInt>;
    case StripOp::logical_not:
      return &IntUnary<uint8_t, NotInt>;
    default:
      return nullptr;
  }
}

template <class T>
StripCode Comparison(StripOp op, int scalars) {
  switch (op) {
    case StripOp::equal:
      return Compare<T, IsEqual>(scalars);
    case StripOp::not_equal:
      return Compare<T, IsNotEqual>(scalars);
    case StripOp::less:
      return Compare<T, IsLess>(scalars);
    case StripOp::less_equal:
      return Compare<T, IsLessEqual>(scalars);
    case StripOp::greater:
      return Compare<T, IsGreater>(scalars);
    case StripOp::greater_equal:
      return Compare<T, IsGreaterEqual>(scalars);
    default:
      return nullptr;
  }
}

template <class From>
StripFn CastFrom(DType to) {
  switch (to) {
    case DType::f64:
      return &Cast<From, double>;
    case DType::f32:
      return &Cast<From, float>;
    case DType::i64:
      return &Cast<From, int64_t>;
    case DType::i32:
      return &Cast<From, int32_t>;
    case DType::u8:
      return &Cast<From, uint8_t>;
    case DType::boolean:
      return &Cast<From, bool>;
    default:
      return nullptr;
  }
}

StripCode BySize(size_t size, StripFn one, StripFn two, StripFn four, StripFn eight) {
  return size == 1 ? one : size == 2 ? two : size == 4 ? four : eight;
}

StripCode Find(StripOp op, DType in, DType out, int scalars) {
  const size_t size = size_of(out);
  if (op == StripOp::copy) return BySize(size, &Copy<1>, &Copy<2>, &Copy<4>, &Copy<8>);
  if (op == StripOp::select && size == 4 && scalars & 4) return {&SelectLoop<uint32_t, true>, 4};
  if (op == StripOp::select)
    return BySize(size, &SelectLoop<uint8_t, false>, &SelectLoop<uint16_t, false>,
                  &SelectLoop<uint32_t, false>, &SelectLoop<uint64_t, false>);
  const auto any = [&](auto tag) -> StripCode {
    using T = decltype(tag);
    if (op == StripOp::cast) return CastFrom<T>(out);
    using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
    if (StripCode code = Comparison<Stored>(op, scalars); code.fn) return code;
    if constexpr (std::is_same_v<T, bool>)
      return Logic(op);
    else if constexpr (std::is_floating_point_v<T>)
      return Float<T>(op, scalars);
    else
      return Integer<T>(op);
  };
  switch (in) {
    case DType::f64:
      return any(double{});
    case DType::f32:
      return any(float{});
    case DType::i64:
      return any(int64_t{});
    case DType::i32:
      return any(int32_t{});
    case DType::u8:
      return any(uint8_t{});
    case DType::boolean:
      return any(bool{});
    default:
      return {};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cairn::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn::cpu {

HWY_EXPORT(Find);

StripCode strip_code(StripOp op, DType in, DType out, int scalars) {
  return HWY_DYNAMIC_DISPATCH(Find)(op, in, out, scalars);
}

StripOp strip_op(std::string_view op_name) {
#define CAIRN_NAME(name) \
  if (op_name == #name) return StripOp::name;
  CAIRN_NAME(cast)
  CAIRN_NAME(select)
  CAIRN_NAME(add) CAIRN_NAME(sub) CAIRN_NAME(mul) CAIRN_NAME(div) CAIRN_NAME(pow) CAIRN_NAME(
      maximum) CAIRN_NAME(minimum) CAIRN_NAME(relu_grad) CAIRN_NAME(equal) CAIRN_NAME(not_equal)
      CAIRN_NAME(less) CAIRN_NAME(less_equal) CAIRN_NAME(greater) CAIRN_NAME(greater_equal)
          CAIRN_NAME(logical_and) CAIRN_NAME(logical_or) CAIRN_NAME(logical_not) CAIRN_NAME(neg)
              CAIRN_NAME(abs) CAIRN_NAME(sign) CAIRN_NAME(square) CAIRN_NAME(exp) CAIRN_NAME(log)
                  CAIRN_NAME(sqrt) CAIRN_NAME(rsqrt) CAIRN_NAME(reciprocal) CAIRN_NAME(sin)
                      CAIRN_NAME(cos) CAIRN_NAME(tanh) CAIRN_NAME(erf) CAIRN_NAME(floor)
                          CAIRN_NAME(ceil) CAIRN_NAME(round) CAIRN_NAME(sigmoid)
                              CAIRN_NAME(softplus) CAIRN_NAME(gelu) CAIRN_NAME(silu) CAIRN_NAME(silu_grad)
                                  CAIRN_NAME(hardsigmoid) CAIRN_NAME(hardswish) CAIRN_NAME(relu)
                                      CAIRN_NAME(leaky_relu) CAIRN_NAME(elu) CAIRN_NAME(clamp)
#undef CAIRN_NAME
                                          if (op_name == "identity" ||
                                              op_name == "stop_gradient") return StripOp::copy;
  return StripOp::none;
}

}  // namespace cairn::cpu
#endif
