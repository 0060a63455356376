// SPDX-License-Identifier: Apache-2.0
// gather takes rows of an axis as NumPy take; scatter_add, its transpose, adds rows into zeros.
#include "ops/catalog.h"
#include "ops/index/index.h"

namespace cairn {
namespace ops {
namespace {

struct GatherParams {
  int64_t axis = 0;
  static constexpr auto fields = describe(field("axis", &GatherParams::axis));
};

struct ScatterParams {
  int64_t length = 0, axis = 0;  // of the output along `axis`
  static constexpr auto fields =
      describe(field("length", &ScatterParams::length), field("axis", &ScatterParams::axis));
};

// The rows of x are [outer, length, inner], those taken [outer, count, inner].
template <class Body>
void for_each_row(const RefTensor& indices, const AxisView& whole, Body&& body) {
  const int64_t count = indices.numel();
  for (int64_t k = 0; k < count; ++k) {
    const int64_t row = checked_index(indices.i[size_t(k)], whole.length);
    for (int64_t o = 0; o < whole.outer; ++o)
      for (int64_t i = 0; i < whole.inner; ++i)
        body((o * whole.length + row) * whole.inner + i, (o * count + k) * whole.inner + i);
  }
}

std::string index_names(int rank) {
  std::string text;
  for (int i = 0; i < rank; ++i) text += fmt::format("{}i{}", i ? " " : "", i);
  return text;
}

}  // namespace

extern const OpDef gather_op = define(OpSpec<GatherParams>{
    .name = "gather",
    .inputs = {{"x"}, {"indices", any_index}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          const Shape& x = in[0].shape;
          const int axis = normalize_axis(p.axis, x.rank());
          Shape shape;
          for (int i = 0; i < axis; ++i) shape.push_back(x[i]);
          for (int64_t length : in[1].shape) shape.push_back(length);
          for (int i = axis + 1; i < x.rank(); ++i) shape.push_back(x[i]);
          return TypeList{{in[0].dtype, shape}};
        },
    .factors =
        [](auto& p, Types in) {
          const int rank = in[0].shape.rank(), axis = normalize_axis(p.axis, rank);
          const std::string i = index_names(in[1].shape.rank());
          return axis_names_with(rank, axis, "x!") + ", " + i + " -> " +
                 axis_names_with(rank, axis, i);
        },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          for_each_row(in[1], AxisView(in[0].shape(), normalize_axis(p.axis, in[0].shape().rank())),
                       [&](int64_t x, int64_t y) { out[0].copy(y, in[0], x); });
        },
    .saves = {input(1)},
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          return grads(scatter_add(dy[0], s.input(1), s.input_type(0).shape, p.axis), Tensor());
        },
    .cost =
        [](auto&, Types in, Types out) {
          return Cost{0, double(in[1].bytes()) + 2 * double(out[0].bytes())};
        },
    .fusion = opaque("reads at positions that data gives"),
    .onnx = OnnxMapping<GatherParams>{"Gather", 13,
                                      [](auto& p, Types) {
                                        return OnnxCall{{{"axis", p.axis}}, {}};
                                      },
                                      [](const OnnxCall& c, Types) {
                                        return std::optional(GatherParams{c.integer("axis", 0)});
                                      }},
    .samples = {{{f32({5, 3}), i64({4}, 0, 5)}},
                {{f32({2, 6, 3}), i32({2, 2}, -6, 6)}, {.axis = 1}},
                {{f32({4}), i64({}, 0, 4)}},
                {{f32({2, 3}), i64({0}, 0, 3)}, {.axis = -1}}},
});

extern const OpDef scatter_add_op = define(OpSpec<ScatterParams>{
    .name = "scatter_add",
    .inputs = {{"values", any_number}, {"indices", any_index}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          const int rank = in[0].shape.rank() - in[1].shape.rank() + 1;  // of the output
          if (rank < 1)
            wrong_input("values", in[0], "at least the axes of input indices, " + to_string(in[1]));
          const int axis = normalize_axis(p.axis, rank);
          Shape shape = in[0].shape;
          for (int i = 0; i < in[1].shape.rank(); ++i) {
            if (shape[axis] != in[1].shape[i])
              wrong_input("values", in[0],
                          fmt::format("the axes of input indices, {}, from axis {} on",
                                      to_string(in[1]), axis));
            shape.erase(axis);
          }
          shape.insert(axis, checked_length(p.length));
          return TypeList{{in[0].dtype, shape}};
        },
    .factors =  // adds up over the indices
    [](auto& p, Types in) {
      const int rank = in[0].shape.rank() - in[1].shape.rank() + 1,
                axis = normalize_axis(p.axis, rank);
      const std::string i = index_names(in[1].shape.rank());
      return axis_names_with(rank, axis, i) + ", " + i + " -> " + axis_names_with(rank, axis, "y!");
    },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          for_each_row(in[1],
                       AxisView(out[0].shape(), normalize_axis(p.axis, out[0].shape().rank())),
                       [&](int64_t y, int64_t value) { accumulate(out[0], y, in[0], value); });
        },
    .saves = {input(1)},
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          return grads(gather(dy[0], s.input(1), p.axis), Tensor());
        },
    .cost =
        [](auto&, Types in, Types out) {
          return Cost{double(in[0].numel()), traffic(in, out)};
        },
    .fusion = opaque("writes at positions that data gives"),
    .onnx = no_onnx("used by gradients only"),
    .samples = {{{f32({4, 3}), i64({4}, 0, 5)}, {.length = 5}},
                {{f32({2, 2, 2, 3}), i32({2, 2}, -6, 6)}, {.length = 6, .axis = 1}},
                {{f32({3}), i64({}, 0, 4)}, {.length = 4}},
                {{i32({4, 2}, -9, 9), i64({4}, 0, 3)}, {.length = 3}},
                {{f32({2, 0}), i64({0}, 0, 3)}, {.length = 3, .axis = -1}}},
});

}  // namespace ops

Tensor gather(const Arg& x, const Arg& indices, int64_t axis) {
  return apply1(ops::gather_op, {x.tensor(), indices.tensor(DType::i64)}, ops::GatherParams{axis},
                x.site());
}

Tensor scatter_add(const Arg& values, const Arg& indices, const Shape& shape, int64_t axis) {
  const int at = normalize_axis(axis, shape.rank());
  const Tensor y = apply1(ops::scatter_add_op, {values.tensor(), indices.tensor(DType::i64)},
                          ops::ScatterParams{shape[at], at}, values.site());
  if (y.shape() != shape) ops::wrong_scatter_shape("scatter_add", shape, y.type());
  return y;
}

}  // namespace cairn
