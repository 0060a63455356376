// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/winograd/transforms.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/winograd/transforms.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first
#include "backends/cpu/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace cairn::cpu::winograd {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;
constexpr int kLanes = int(hn::MaxLanes(F()));

HWY_INLINE V Load(const float* at) { return hn::LoadU(F(), at); }
HWY_INLINE void Store(V v, float* at) { hn::StoreU(v, F(), at); }
// a + factor · b
HWY_INLINE V Plus(V a, float factor, V b) { return hn::MulAdd(hn::Set(F(), factor), b, a); }

// ---- the matrices, each applied to one column ----

struct Bt {
  static constexpr int kIn = 6, kOut = 6;
  static HWY_INLINE void Apply(const V (&d)[6], V (&r)[6]) {
    const V even = Plus(d[4], -4, d[2]), odd = Plus(d[3], -4, d[1]);
    const V even2 = hn::Sub(d[4], d[2]), odd2 = hn::Sub(d[3], d[1]);
    r[0] = Plus(Plus(d[4], -5, d[2]), 4, d[0]);
    r[1] = hn::Add(even, odd);
    r[2] = hn::Sub(even, odd);
    r[3] = Plus(even2, 2, odd2);
    r[4] = Plus(even2, -2, odd2);
    r[5] = Plus(Plus(d[5], -5, d[3]), 4, d[1]);
  }
};
struct At {
  static constexpr int kIn = 6, kOut = 4;
  static HWY_INLINE void Apply(const V (&m)[6], V (&y)[4]) {
    const V sum = hn::Add(m[1], m[2]), difference = hn::Sub(m[1], m[2]);
    const V sum2 = hn::Add(m[3], m[4]), difference2 = hn::Sub(m[3], m[4]);
    y[0] = hn::Add(hn::Add(m[0], sum), sum2);
    y[1] = Plus(difference, 2, difference2);
    y[2] = Plus(sum, 4, sum2);
    y[3] = hn::Add(Plus(difference, 8, difference2), m[5]);
  }
};
struct A {
  static constexpr int kIn = 4, kOut = 6;
  static HWY_INLINE void Apply(const V (&d)[4], V (&r)[6]) {
    const V even = hn::Add(d[0], d[2]), odd = hn::Add(d[1], d[3]);
    const V even2 = Plus(d[0], 4, d[2]), odd2 = Plus(d[1], 4, d[3]);
    r[0] = d[0];
    r[1] = hn::Add(even, odd);
    r[2] = hn::Sub(even, odd);
    r[3] = Plus(even2, 2, odd2);
    r[4] = Plus(even2, -2, odd2);
    r[5] = d[3];
  }
};
struct G {
  static constexpr int kIn = 3, kOut = 6;
  static HWY_INLINE void Apply(const V (&g)[3], V (&r)[6]) {
    const V zero = hn::Zero(F());
    const V even = Plus(Plus(zero, -1.f / 6, g[0]), -1.f / 6, g[2]);
    const V even2 = Plus(Plus(zero, 1.f / 24, g[0]), 1.f / 6, g[2]);
    r[0] = Plus(zero, 0.25f, g[0]);
    r[1] = Plus(even, -1.f / 6, g[1]);
    r[2] = Plus(even, 1.f / 6, g[1]);
    r[3] = Plus(even2, 1.f / 12, g[1]);
    r[4] = Plus(even2, -1.f / 12, g[1]);
    r[5] = g[2];
  }
};
struct Gt {
  static constexpr int kIn = 6, kOut = 3;
  static HWY_INLINE void Apply(const V (&m)[6], V (&w)[3]) {
    const V sum = hn::Add(m[1], m[2]), difference = hn::Sub(m[2], m[1]);
    const V sum2 = hn::Add(m[3], m[4]), difference2 = hn::Sub(m[3], m[4]);
    const V zero = hn::Zero(F());
    w[0] = Plus(Plus(Plus(zero, 0.25f, m[0]), -1.f / 6, sum), 1.f / 24, sum2);
    w[1] = Plus(Plus(zero, 1.f / 6, difference), 1.f / 12, difference2);
    w[2] = Plus(Plus(m[5], -1.f / 6, sum), 1.f / 6, sum2);
  }
};

// store(i, j, (T X Tᵀ)_ij) with X_ij = load(i, j).
template <class T, class LoadAt, class StoreAt>
HWY_INLINE void Transform(LoadAt&& load, StoreAt&& store) {
  V half[T::kOut][T::kIn];
  for (int j = 0; j < T::kIn; ++j) {
    V in[T::kIn], out[T::kOut];
    for (int i = 0; i < T::kIn; ++i) in[i] = load(i, j);
    T::Apply(in, out);
    for (int i = 0; i < T::kOut; ++i) half[i][j] = out[i];
  }
  for (int i = 0; i < T::kOut; ++i) {
    V out[T::kOut];
    T::Apply(half[i], out);
    for (int j = 0; j < T::kOut; ++j) store(i, j, out[j]);
  }
}

// ---- pictures ----

// body(index in the range, picture, first row, first column) for each tile, where rows and columns
// are those of the output.
template <class Body>
HWY_INLINE void ForTiles(const Tiling& t, TileRange range, Body&& body) {
  const int64_t across = t.across(), of_picture = t.down() * across;
  int64_t picture = range.first / of_picture, i = range.first % of_picture / across,
          j = range.first % across;
  for (int64_t k = 0; k < range.count; ++k) {
    body(k, picture, i * kTile, j * kTile);
    if (++j < across) continue;
    j = 0;
    if (++i < t.down()) continue;
    i = 0, ++picture;
  }
}

// T applied to the square of a picture that starts at (row, column); zeros outside the picture.
template <class T>
HWY_INLINE void FromPicture(const float* picture, Tiling::Size size, int64_t row, int64_t column,
                            Points<float> to) {
  const int64_t width = size.width * kLanes;
  const auto store = [&](int i, int j, V v) { Store(v, to.data + (i * T::kOut + j) * to.plane); };
  if (row >= 0 && column >= 0 && row + T::kIn <= size.height && column + T::kIn <= size.width) {
    const float* at = picture + row * width + column * kLanes;
    Transform<T>([&](int i, int j) { return Load(at + i * width + j * kLanes); }, store);
  } else {
    Transform<T>(
        [&](int i, int j) {
          return uint64_t(row + i) < uint64_t(size.height) &&
                         uint64_t(column + j) < uint64_t(size.width)
                     ? Load(picture + (row + i) * width + (column + j) * kLanes)
                     : hn::Zero(F());
        },
        store);
  }
}

void Input(const Tiling& t, TileRange range, Channels<const float> x, Points<float> v) {
  ForTiles(t, range, [&](int64_t k, int64_t picture, int64_t row, int64_t column) {
    FromPicture<Bt>(x.data + picture * x.step, t.in, row - t.top, column - t.left,
                    {v.data + k * kLanes, v.plane});
  });
}
void Gradient(const Tiling& t, TileRange range, Channels<const float> dy, Points<float> z) {
  ForTiles(t, range, [&](int64_t k, int64_t picture, int64_t row, int64_t column) {
    FromPicture<A>(dy.data + picture * dy.step, t.out, row, column, {z.data + k * kLanes, z.plane});
  });
}

HWY_INLINE V Activate(const Epilogue& e, V y) {
  switch (e.activation) {
    case Epilogue::leaky:
      return hn::IfThenElse(hn::Lt(y, hn::Zero(F())), hn::Mul(y, hn::Set(F(), e.slope)), y);
    case Epilogue::silu:
      return hn::Mul(y, cpu::HWY_NAMESPACE::SigmoidF32(F(), y));
    case Epilogue::clamp:
      break;
  }
  // NaN stays: these give their second operand then.
  return hn::Min(hn::Set(F(), e.high), hn::Max(hn::Set(F(), e.low), y));
}

void Output(const Tiling& t, TileRange range, Points<const float> m, const float* bias,
            Channels<const float> residual, const Epilogue& epilogue, Channels<float> y) {
  const int64_t width = t.out.width * kLanes;
  const V add = bias ? Load(bias) : hn::Zero(F());
  ForTiles(t, range, [&](int64_t k, int64_t picture, int64_t row, int64_t column) {
    const int64_t start = row * width + column * kLanes;
    const float* from = m.data + k * kLanes;
    float* to = y.data + picture * y.step + start;
    const float* other = residual.data ? residual.data + picture * residual.step + start : nullptr;
    const auto load = [&](int i, int j) { return Load(from + (i * At::kIn + j) * m.plane); };
    const auto store = [&](int i, int j, V v) {
      const int64_t at = i * width + j * kLanes;
      v = hn::Add(v, add);
      if (other) v = hn::Add(v, Load(other + at));
      Store(Activate(epilogue, v), to + at);
    };
    const int64_t rows = t.out.height - row, columns = t.out.width - column;
    if (rows >= kTile && columns >= kTile)
      Transform<At>(load, store);
    else
      Transform<At>(load, [&](int i, int j, V v) {
        if (i < rows && j < columns) store(i, j, v);
      });
  });
}

// ---- filters ----

void Filter(const float* w, Points<float> u, int64_t step) {
  for (int row = 0; row < kLanes; ++row)
    Transform<G>(
        [&](int i, int j) { return Load(w + ((i * 3 + j) * kLanes + row) * kLanes); },
        [&](int i, int j, V v) { Store(v, u.data + (i * G::kOut + j) * u.plane + row * step); });
}

// Rows to columns: each round moves one bit of a place from its column number to its row number.
HWY_INLINE void Transpose(const float* from, float* to) {
  V rows[kLanes], mixed[kLanes];
  for (int i = 0; i < kLanes; ++i) rows[i] = Load(from + i * kLanes);
  for (int round = 1; round < kLanes; round *= 2) {
    for (int i = 0; i < kLanes / 2; ++i) {
      mixed[i] = hn::ConcatEven(F(), rows[2 * i + 1], rows[2 * i]);
      mixed[i + kLanes / 2] = hn::ConcatOdd(F(), rows[2 * i + 1], rows[2 * i]);
    }
    for (int i = 0; i < kLanes; ++i) rows[i] = mixed[i];
  }
  for (int i = 0; i < kLanes; ++i) Store(rows[i], to + i * kLanes);
}

void TurnedFilter(const float* w, Points<float> u, int64_t step) {
  constexpr int kSquare = kLanes * kLanes;
  HWY_ALIGN float turned[9 * kSquare];
  for (int tap = 0; tap < 9; ++tap) Transpose(w + tap * kSquare, turned + (8 - tap) * kSquare);
  Filter(turned, u, step);
}

void FilterGradient(Points<const float> s, int64_t step, float* dw) {
  for (int row = 0; row < kLanes; ++row)
    Transform<Gt>(
        [&](int i, int j) { return Load(s.data + (i * Gt::kIn + j) * s.plane + row * step); },
        [&](int i, int j, V v) { Store(v, dw + ((i * 3 + j) * kLanes + row) * kLanes); });
}

const Transforms* Table() {
  static constexpr Transforms kTable{kLanes,  &Input,        &Gradient,      &Output,
                                     &Filter, &TurnedFilter, &FilterGradient};
  return &kTable;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace cairn::cpu::winograd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cairn::cpu::winograd {

HWY_EXPORT(Table);
const Transforms& transforms() { return *HWY_DYNAMIC_DISPATCH(Table)(); }

}  // namespace cairn::cpu::winograd
#endif
