// SPDX-License-Identifier: Apache-2.0
// Reshape: the same elements in row-major order under another shape; one length may be −1,
// inferred. flatten, squeeze and unsqueeze are reshapes.
#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

struct ReshapeParams {
  Shape shape;
  static constexpr auto fields = describe(field("shape", &ReshapeParams::shape));
};

Shape resolve(Shape shape, const TensorType& x) {
  int inferred = -1;
  int64_t known = 1;
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] == -1 && inferred < 0)
      inferred = i;
    else if (shape[i] < 0)
      wrong_param("shape", to_string(shape), "lengths and at most one -1");
    else
      known *= shape[i];
  const std::string got = to_string(shape);
  if (inferred >= 0 && known > 0 && x.numel() % known == 0)
    shape[inferred] = x.numel() / known;
  else if (inferred >= 0 || shape.numel() != x.numel())
    wrong_param("shape", got,
                fmt::format("one with the {} elements of input x, {}", x.numel(), to_string(x)));
  return shape;
}

// The axis of x that axis j of y is, with all before it: same length, same number of elements
// outside; else −1.
int same_axis(const Shape& x, const Shape& y, int j) {
  int64_t outer = 1, before = 1;
  for (int k = 0; k < j; ++k) outer *= y[k];
  for (int i = 0; i < x.rank(); before *= x[i++])
    if (before == outer && x[i] == y[j]) return i;
  return -1;
}

}  // namespace

extern const OpDef reshape_op = define(OpSpec<ReshapeParams>{
    .name = "reshape",
    .inputs = {{"x"}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          return TypeList{{in[0].dtype, resolve(p.shape, in[0])}};
        },
    // Lengths are fixed by the parameters, but for the inferred one when it is an axis of x.
    .factors =
        [](auto& p, Types in) {
          const Shape &x = in[0].shape, y = resolve(p.shape, in[0]);
          int from = -1, to = -1;
          for (int j = 0; j < y.rank(); ++j)
            if (p.shape[j] == -1) from = same_axis(x, y, to = j);
          std::string text;
          for (int i = 0; i < x.rank(); ++i) text += i == from ? "a " : fmt::format("x{}! ", i);
          text += "->";
          for (int j = 0; j < y.rank(); ++j)
            text += from >= 0 && j == to ? " a" : fmt::format(" y{}!", j);
          return text;
        },
    .reference =
        [](auto&, RefIn in, RefOut out) {
          out[0].f = in[0].f;
          out[0].i = in[0].i;
        },
    .saves = none("elements only move"),
    .gradient =
        [](auto&, const Saved& s, std::span<const Tensor> dy) {
          return grads(reshape(dy[0], s.input_type(0).shape));
        },
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 0); },
    .fusion = view_only(),
    .onnx =
        OnnxMapping<ReshapeParams>{
            "Reshape", 14,
            [](auto& p, Types) {
              OnnxCall call{{}, {{1, Tensor::from(p.shape.span(), {p.shape.rank()})}}};
              for (int64_t length : p.shape)
                if (length == 0) call.attributes = {{"allowzero", int64_t(1)}};
              return call;
            },
            [](const OnnxCall& c, Types in) -> std::optional<ReshapeParams> {
              if (!c.constant(1)) return std::nullopt;
              ReshapeParams p{Shape(c.constant(1)->template values<int64_t>())};
              if (!c.integer("allowzero", 0))
                for (int i = 0; i < p.shape.rank() && i < in[0].shape.rank(); ++i)
                  if (p.shape[i] == 0) p.shape[i] = in[0].shape[i];
              return p;
            }},
    .samples = {{{f32({2, 3, 4})}, {{-1, 12}}},
                {{f32({4, 6})}, {{4, 2, -1}}},
                {{f32({6})}, {{2, 1, 3}}},
                {{f32({1})}, {Shape{}}},
                {{i32({3, 4}, -9, 9)}, {{-1, 2, 2}}},
                {{f32({0, 3})}, {{3, 0}}}},
    .view = [](auto& p, const StridedView& in, Types types) -> std::optional<StridedView> {
      int64_t expected = 1;
      for (int i = in.shape.rank() - 1; i >= 0; --i) {
        if (in.shape[i] != 1 && in.strides[i] != expected && types[0].numel() != 0)
          return std::nullopt;
        expected *= in.shape[i];
      }
      const Shape shape = resolve(p.shape, types[0]);
      return StridedView{shape, dense_strides(shape), in.offset};
    },
});

}  // namespace ops

// Leaves one length to be inferred (an axis of x where there is one, else the first), so that the
// same call fits another batch size.
Tensor reshape(const Arg& x, const Shape& shape) {
  const Tensor t = x.tensor();
  if (t.defined() && t.shape() == shape) return t;
  Shape open = shape;
  if (t.defined() && open.rank() > 0 && t.numel() == open.numel() && t.numel() > 0) {
    int axis = 0;
    for (int j = open.rank() - 1; j >= 0; --j)
      if (open[j] != 1 && ops::same_axis(t.shape(), shape, j) >= 0) axis = j;
    open[axis] = -1;
  }
  return apply1(ops::reshape_op, {t}, ops::ReshapeParams{open}, x.site());
}

Tensor flatten(const Arg& x, int64_t from_axis) {
  const Tensor t = x.tensor();
  const int from = t.rank() == 0 ? 0 : normalize_axis(from_axis, t.rank());
  Shape shape;
  for (int i = 0; i < from; ++i) shape.push_back(t.shape()[i]);
  int64_t rest = 1;
  for (int i = from; i < t.rank(); ++i) rest *= t.shape()[i];
  shape.push_back(rest);
  return reshape(x, shape);
}

Tensor squeeze(const Arg& x, int64_t axis) {
  Shape shape = x.tensor().shape();
  const int at = normalize_axis(axis, shape.rank());
  if (shape[at] != 1)
    fail(ErrorCode::shape_mismatch,
         fmt::format("squeeze: input x: got {}, expected length 1 along axis {}",
                     to_string(x.tensor().type()), at));
  shape.erase(at);
  return reshape(x, shape);
}

Tensor unsqueeze(const Arg& x, int64_t axis) {
  Shape shape = x.tensor().shape();
  shape.insert(normalize_axis(axis, shape.rank() + 1), 1);
  return reshape(x, shape);
}

}  // namespace cairn
