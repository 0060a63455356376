// SPDX-License-Identifier: Apache-2.0
// gather_elements picks one element an index, along an axis; scatter_elements_add is its transpose.
#include "ops/catalog.h"
#include "ops/index/index.h"

namespace cairn {
namespace ops {
namespace {

struct GatherElementsParams {
  int64_t axis = 0;
  static constexpr auto fields = describe(field("axis", &GatherElementsParams::axis));
};

struct ScatterElementsParams {
  int64_t length = 0, axis = 0;  // of the output along `axis`
  static constexpr auto fields = describe(field("length", &ScatterElementsParams::length),
                                          field("axis", &ScatterElementsParams::axis));
};

// Calls body(whole, k): element k of the indices and the place it points at.
template <class Body>
void for_each_index(const RefTensor& indices, const AxisView& whole, int axis, Body&& body) {
  const AxisView v(indices.shape(), axis);
  for (int64_t k = 0; k < indices.numel(); ++k) {
    const int64_t o = k / (v.length * v.inner), i = k % v.inner;
    body((o * whole.length + checked_index(indices.i[size_t(k)], whole.length)) * whole.inner + i,
         k);
  }
}

}  // namespace

extern const OpDef gather_elements_op = define(OpSpec<GatherElementsParams>{
    .name = "gather_elements",
    .inputs = {{"x"}, {"indices", any_index}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          const int axis = normalize_axis(p.axis, in[0].shape.rank());
          Shape expected = in[0].shape;
          if (in[1].shape.rank() == expected.rank()) expected[axis] = in[1].shape[axis];
          if (in[1].shape != expected)
            wrong_input(
                "indices", in[1],
                fmt::format("the shape of input x, {}, but for axis {}", to_string(in[0]), axis));
          return TypeList{{in[0].dtype, in[1].shape}};
        },
    .factors =
        [](auto& p, Types in) {
          const int rank = in[0].shape.rank(), axis = normalize_axis(p.axis, rank);
          const std::string index = axis_names_with(rank, axis, "i");
          return axis_names_with(rank, axis, "x!") + ", " + index + " -> " + index;
        },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const int axis = normalize_axis(p.axis, in[0].shape().rank());
          for_each_index(in[1], AxisView(in[0].shape(), axis), axis,
                         [&](int64_t x, int64_t k) { out[0].copy(k, in[0], x); });
        },
    .saves = {input(1)},
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          return grads(scatter_elements_add(dy[0], s.input(1), s.input_type(0).shape, p.axis),
                       Tensor());
        },
    .cost =
        [](auto&, Types in, Types out) {
          return Cost{0, double(in[1].bytes()) + 2 * double(out[0].bytes())};
        },
    .fusion = opaque("reads at positions that data gives"),
    .onnx = OnnxMapping<GatherElementsParams>{"GatherElements", 13,
                                              [](auto& p, Types) {
                                                return OnnxCall{{{"axis", p.axis}}, {}};
                                              },
                                              [](const OnnxCall& c, Types) {
                                                return std::optional(
                                                    GatherElementsParams{c.integer("axis", 0)});
                                              }},
    .samples = {{{f32({5, 3}), i64({2, 3}, 0, 5)}},
                {{f32({2, 6, 3}), i32({2, 1, 3}, -6, 6)}, {.axis = 1}},
                {{f32({4}), i64({7}, 0, 4)}, {.axis = -1}},
                {{f32({2, 3}), i64({2, 0}, 0, 3)}, {.axis = -1}}},
});

extern const OpDef scatter_elements_add_op = define(OpSpec<ScatterElementsParams>{
    .name = "scatter_elements_add",
    .inputs = {{"values", any_number}, {"indices", any_index}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          if (in[0].shape != in[1].shape)
            wrong_input("indices", in[1], "the shape of input values, " + to_string(in[0]));
          Shape shape = in[0].shape;
          shape[normalize_axis(p.axis, shape.rank())] = checked_length(p.length);
          return TypeList{{in[0].dtype, shape}};
        },
    .factors =  // adds up over the indices
    [](auto& p, Types in) {
      const int rank = in[0].shape.rank(), axis = normalize_axis(p.axis, rank);
      const std::string index = axis_names_with(rank, axis, "i");
      return index + ", " + index + " -> " + axis_names_with(rank, axis, "y!");
    },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const int axis = normalize_axis(p.axis, out[0].shape().rank());
          for_each_index(in[1], AxisView(out[0].shape(), axis), axis,
                         [&](int64_t y, int64_t k) { accumulate(out[0], y, in[0], k); });
        },
    .saves = {input(1)},
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          return grads(gather_elements(dy[0], s.input(1), p.axis), Tensor());
        },
    .cost =
        [](auto&, Types in, Types out) {
          return Cost{double(in[0].numel()), traffic(in, out)};
        },
    .fusion = opaque("writes at positions that data gives"),
    .onnx = no_onnx("used by gradients only"),
    .samples = {{{f32({4, 3}), i64({4, 3}, 0, 5)}, {.length = 5}},
                {{f32({2, 2, 3}), i32({2, 2, 3}, -6, 6)}, {.length = 6, .axis = 1}},
                {{i32({4, 2}, -9, 9), i64({4, 2}, 0, 3)}, {.length = 3, .axis = 0}},
                {{f32({2, 0}), i64({2, 0}, 0, 3)}, {.length = 3, .axis = -1}}},
});

}  // namespace ops

Tensor gather_elements(const Arg& x, const Arg& indices, int64_t axis) {
  return apply1(ops::gather_elements_op, {x.tensor(), indices.tensor(DType::i64)},
                ops::GatherElementsParams{axis}, x.site());
}

Tensor scatter_elements_add(const Arg& values, const Arg& indices, const Shape& shape,
                            int64_t axis) {
  const int at = normalize_axis(axis, shape.rank());
  const Tensor y =
      apply1(ops::scatter_elements_add_op, {values.tensor(), indices.tensor(DType::i64)},
             ops::ScatterElementsParams{shape[at], at}, values.site());
  if (y.shape() != shape) ops::wrong_scatter_shape("scatter_elements_add", shape, y.type());
  return y;
}

}  // namespace cairn
