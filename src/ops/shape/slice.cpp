// SPDX-License-Identifier: Apache-2.0
// Slice as in Python, an axis at a time; flip is a slice with step −1. slice_grad puts a slice back
// among zeros.
#include <algorithm>
#include <limits>

#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();    // end of an axis taken forwards
constexpr int64_t kStart = std::numeric_limits<int64_t>::min();  // … and backwards

// One entry an axis. A whole axis is 0, kEnd, 1, so that the same parameters fit any length.
struct SliceParams {
  std::vector<int64_t> begin, end, step;
  static constexpr auto fields =
      describe(field("begin", &SliceParams::begin), field("end", &SliceParams::end),
               field("step", &SliceParams::step));
  bool whole(int axis) const {
    const auto i = size_t(axis);
    return begin[i] == 0 && end[i] == kEnd && step[i] == 1;
  }
};

struct Range {
  int64_t first, step, count;
};

Range range(const SliceParams& p, int axis, int64_t length) {
  const auto i = size_t(axis);
  const int64_t step = p.step[i];
  const auto clamped = [&](int64_t at) {
    if (at < 0) at += length;
    return step > 0 ? std::clamp<int64_t>(at, 0, length) : std::clamp<int64_t>(at, -1, length - 1);
  };
  const int64_t first = clamped(p.begin[i]), last = clamped(p.end[i]);
  const int64_t distance = step > 0 ? last - first : first - last;
  const uint64_t stride = step > 0 ? uint64_t(step) : -uint64_t(step);
  return {first, step, distance > 0 ? int64_t((uint64_t(distance) - 1) / stride) + 1 : 0};
}

void check(const SliceParams& p, const TensorType& x) {
  const auto rank = size_t(x.shape.rank());
  if (p.begin.size() != rank || p.end.size() != rank || p.step.size() != rank)
    wrong_param("begin, end, step",
                fmt::format("{}, {} and {} entries", p.begin.size(), p.end.size(), p.step.size()),
                fmt::format("{}, one an axis of {}", rank, to_string(x)));
  for (int64_t step : p.step)
    if (step == 0) wrong_param("step", "0", "a positive or negative step");
}

Shape sliced(const SliceParams& p, const Shape& x) {
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) shape.push_back(range(p, i, x[i]).count);
  return shape;
}

StridedView view_of(const SliceParams& p, const StridedView& x) {
  StridedView v{sliced(p, x.shape), x.strides, x.offset};
  for (int i = 0; i < x.shape.rank(); ++i) {
    const Range r = range(p, i, x.shape[i]);
    if (r.count > 0) v.offset += r.first * x.strides[i];
    v.strides[i] *= r.count > 1 ? r.step : 1;
  }
  return v;
}

// Calls body(k, at) for each element k of the slice and its place in x.
template <class Body>
void for_each_element(const SliceParams& p, const Shape& x, Body&& body) {
  const StridedView v = view_of(p, {x, dense_strides(x), 0});
  for (int64_t k = 0, n = v.shape.numel(); k < n; ++k) {
    int64_t rest = k, at = v.offset;
    for (int i = v.shape.rank() - 1; i >= 0; rest /= v.shape[i--])
      at += rest % v.shape[i] * v.strides[i];
    body(k, at);
  }
}

struct SliceGradParams {
  std::vector<int64_t> begin, end, step;
  std::vector<int64_t> shape;  // of x; −1 where the axis is whole
  static constexpr auto fields =
      describe(field("begin", &SliceGradParams::begin), field("end", &SliceGradParams::end),
               field("step", &SliceGradParams::step), field("shape", &SliceGradParams::shape));
  SliceParams slice() const { return {begin, end, step}; }
  Shape full(const Shape& dy) const {
    Shape out = Shape(shape);
    for (int i = 0; i < out.rank() && i < dy.rank(); ++i)
      if (out[i] == -1) out[i] = dy[i];
    return out;
  }
};

OnnxCall write(const SliceParams& p, Types in) {
  std::vector<int64_t> begin, end, axes, step;
  for (int i = 0; i < in[0].shape.rank(); ++i)
    if (!p.whole(i) || (axes.empty() && i + 1 == in[0].shape.rank())) {
      begin.push_back(p.begin[size_t(i)]);
      end.push_back(p.end[size_t(i)]);
      axes.push_back(i);
      step.push_back(p.step[size_t(i)]);
    }
  const Shape count{int64_t(axes.size())};
  return {{},
          {{1, Tensor::from(begin, count)},
           {2, Tensor::from(end, count)},
           {3, Tensor::from(axes, count)},
           {4, Tensor::from(step, count)}}};
}

std::optional<SliceParams> read(const OnnxCall& c, Types in) {
  const auto list = [&](int position) {
    const Tensor& t = *c.constant(position);
    std::vector<int64_t> out;
    if (t.dtype() == DType::i64) return t.values<int64_t>();
    for (int32_t v : t.values<int32_t>()) out.push_back(v);
    return out;
  };
  if (!c.constant(1) || !c.constant(2)) return std::nullopt;
  const int rank = in[0].shape.rank();
  const auto begin = list(1), end = list(2);
  std::vector<int64_t> axes, step(begin.size(), 1);
  for (size_t i = 0; i < begin.size(); ++i) axes.push_back(int64_t(i));
  if (c.constant(3)) axes = list(3);
  if (c.constant(4)) step = list(4);
  if (end.size() != begin.size() || axes.size() != begin.size() || step.size() != begin.size())
    fail(ErrorCode::parse, "slice: ONNX starts, ends, axes and steps differ in length");
  SliceParams p{std::vector<int64_t>(size_t(rank), 0), std::vector<int64_t>(size_t(rank), kEnd),
                std::vector<int64_t>(size_t(rank), 1)};
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = size_t(normalize_axis(axes[i], rank));
    p.begin[axis] = begin[i];
    p.end[axis] = end[i];
    p.step[axis] = step[i];
  }
  return p;
}

}  // namespace

extern const OpDef slice_op = define(OpSpec<SliceParams>{
    .name = "slice",
    .inputs = {{"x"}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          check(p, in[0]);
          return TypeList{{in[0].dtype, sliced(p, in[0].shape)}};
        },
    .factors =
        [](auto& p, Types in) {
          return factors_where(in[0].shape.rank(), [&](int i) { return p.whole(i); });
        },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          for_each_element(p, in[0].shape(),
                           [&](int64_t k, int64_t at) { out[0].copy(k, in[0], at); });
        },
    .saves = none("elements only move"),
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          const Shape& x = s.input_type(0).shape;
          SliceGradParams g{p.begin, p.end, p.step, {x.begin(), x.end()}};
          for (int i = 0; i < x.rank(); ++i)
            if (p.whole(i)) g.shape[size_t(i)] = -1;
          return grads(apply1(slice_grad_op, {dy[0]}, g));
        },
    .cost =
        [](auto&, Types, Types out) {
          return Cost{0, 2 * double(out[0].bytes())};
        },
    .fusion = view_only(),
    .onnx = OnnxMapping<SliceParams>{"Slice", 13, write, read},
    .samples = {{{f32({4, 5})}, {{1, 0}, {3, kEnd}, {1, 1}}},
                {{f32({5, 2, 7})}, {{0, 0, -1}, {kEnd, kEnd, 0}, {2, 1, -3}}},
                {{f32({6})}, {{-1}, {kStart}, {-1}}},
                {{f32({2, 3})}, {{0, 2}, {kEnd, 1}, {1, 1}}},
                {{i32({3, 4}, -9, 9)}, {{-2, 0}, {100, kEnd}, {1, 1}}},
                {{f32({0, 3})}, {{0, 1}, {kEnd, 3}, {1, 1}}}},
    .view = [](auto& p, const StridedView& in, Types) { return std::optional(view_of(p, in)); },
});

extern const OpDef slice_grad_op = define(OpSpec<SliceGradParams>{
    .name = "slice_grad",
    .inputs = {{"dy"}},
    .outputs = {{"dx"}},
    .infer =
        [](auto& p, Types in) {
          const TensorType full{in[0].dtype, p.full(in[0].shape)};
          check(p.slice(), full);
          if (const Shape expected = sliced(p.slice(), full.shape); expected != in[0].shape)
            wrong_input("dy", in[0],
                        fmt::format("{}, a slice of {}", to_string(expected), to_string(full)));
          return TypeList{full};
        },
    .factors =
        [](auto& p, Types in) {
          return factors_where(in[0].shape.rank(), [&](int i) {
            return p.shape[size_t(i)] == -1 && p.slice().whole(i);
          });
        },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          for_each_element(p.slice(), out[0].shape(),
                           [&](int64_t k, int64_t at) { out[0].copy(at, in[0], k); });
        },
    .saves = none("elements only move"),
    .gradient =
        [](auto& p, const Saved&, std::span<const Tensor> dy) {
          return grads(apply1(slice_op, {dy[0]}, p.slice()));
        },
    .cost =
        [](auto&, Types in, Types out) {
          return Cost{0, traffic(in, out)};
        },
    .fusion = opaque("writes its input among zeros"),
    .onnx = no_onnx("used by gradients only"),
    .samples = {{{f32({2, 5})}, {{1, 0}, {3, kEnd}, {1, 1}, {4, -1}}},
                {{f32({3, 2, 2})}, {{0, 0, -1}, {kEnd, kEnd, 0}, {2, 1, -3}, {5, -1, 7}}},
                {{f32({0, 3})}, {{1, 0}, {1, kEnd}, {1, 1}, {4, -1}}}},
});

}  // namespace ops

Tensor slice(const Arg& x, const std::vector<int64_t>& begin, const std::vector<int64_t>& end,
             const std::vector<int64_t>& step) {
  const Tensor t = x.tensor();
  ops::SliceParams p{begin, end, step};
  if (p.step.empty()) p.step.assign(begin.size(), 1);
  for (int i = 0;
       i < t.rank() && size_t(i) < std::min({p.begin.size(), p.end.size(), p.step.size()}); ++i)
    if (p.step[size_t(i)] == 1 && p.begin[size_t(i)] == 0 && p.end[size_t(i)] >= t.shape()[i])
      p.end[size_t(i)] = ops::kEnd;
  return apply1(ops::slice_op, {t}, p, x.site());
}

Tensor flip(const Arg& x, const Axes& axes) {
  const Tensor t = x.tensor();
  const auto rank = size_t(t.rank());
  ops::SliceParams p{std::vector<int64_t>(rank, 0), std::vector<int64_t>(rank, ops::kEnd),
                     std::vector<int64_t>(rank, 1)};
  for (int64_t given : axes) {
    const auto axis = size_t(normalize_axis(given, t.rank()));
    p.begin[axis] = -1;
    p.end[axis] = ops::kStart;
    p.step[axis] = -1;
  }
  return apply1(ops::slice_op, {t}, p, x.site());
}

}  // namespace cairn
