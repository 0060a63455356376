// SPDX-License-Identifier: Apache-2.0
// Tensors from parameters or indices alone: full, iota, one_hot.
#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

Shape checked(const Shape& shape) {
  for (int64_t length : shape)
    if (length < 0) wrong_param("shape", to_string(shape), "lengths of 0 or more");
  return shape;
}

std::string whole(const Shape& shape) {
  std::vector<int> all;
  for (int i = 0; i < shape.rank(); ++i) all.push_back(i);
  return "-> " + axis_names(shape.rank(), all);
}

struct FullParams {
  Shape shape;
  double value = 0;
  DType dtype = DType::f32;
  static constexpr auto fields =
      describe(field("shape", &FullParams::shape), field("value", &FullParams::value),
               field("dtype", &FullParams::dtype));
};

struct IotaParams {
  Shape shape;
  int64_t axis = 0;
  DType dtype = DType::f32;
  static constexpr auto fields =
      describe(field("shape", &IotaParams::shape), field("axis", &IotaParams::axis),
               field("dtype", &IotaParams::dtype));
};

struct OneHotParams {
  int64_t classes = 2;
  DType dtype = DType::f32;
  static constexpr auto fields =
      describe(field("classes", &OneHotParams::classes), field("dtype", &OneHotParams::dtype));
};

}  // namespace

extern const OpDef full_op = define(OpSpec<FullParams>{
    .name = "full",
    .inputs = {},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types) {
          return TypeList{{p.dtype, checked(p.shape)}};
        },
    .factors = [](auto& p, Types) { return whole(p.shape); },
    .reference = [](auto& p, RefIn, RefOut out) { fill(out[0], p.value); },
    .saves = none("no inputs"),
    .gradient = no_gradient("no inputs"),
    .cost =
        [](auto&, Types in, Types out) {
          return Cost{0, traffic(in, out)};
        },
    .fusion = elementwise(),
    .onnx = no_onnx("folded into a constant"),
    .samples = {{{}, {{2, 3}, 1.5, DType::f32}},
                {{}, {{}, 7, DType::i64}},
                {{}, {{0, 2}, 1, DType::f64}},
                {{}, {{3}, 1, DType::boolean}}},
});

extern const OpDef iota_op = define(OpSpec<IotaParams>{
    .name = "iota",
    .inputs = {},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types) {
          if (p.dtype == DType::boolean) wrong_param("dtype", "bool", "a number dtype");
          normalize_axis(p.axis, p.shape.rank());
          return TypeList{{p.dtype, checked(p.shape)}};
        },
    .factors = [](auto& p, Types) { return whole(p.shape); },
    .reference =
        [](auto& p, RefIn, RefOut out) {
          const AxisView v(p.shape, normalize_axis(p.axis, p.shape.rank()));
          for (int64_t k = 0; k < out[0].numel(); ++k) {
            const int64_t at = k / v.inner % v.length;
            if (out[0].is_float())
              out[0].f[size_t(k)] = double(at);
            else
              out[0].i[size_t(k)] = at;
          }
        },
    .saves = none("no inputs"),
    .gradient = no_gradient("no inputs"),
    .cost =
        [](auto&, Types in, Types out) {
          return Cost{0, traffic(in, out)};
        },
    .fusion = elementwise(),
    .onnx = no_onnx("folded into a constant"),
    .samples = {{{}, {{5}, 0, DType::f32}},
                {{}, {{2, 3, 4}, 1, DType::i64}},
                {{}, {{3, 0}, -1, DType::i32}}},
});

// A new last axis with 1 at the index; a row of zeros for an index outside 0 … classes−1.
extern const OpDef one_hot_op = define(OpSpec<OneHotParams>{
    .name = "one_hot",
    .inputs = {{"indices", any_index}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          if (p.classes < 1) wrong_param("classes", std::to_string(p.classes), "1 or more");
          Shape shape = in[0].shape;
          shape.push_back(p.classes);
          return TypeList{{p.dtype, shape}};
        },
    .factors =
        [](auto&, Types in) {
          const std::string names = axis_names(in[0].shape.rank());
          return names + " -> " + names + " y!";
        },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          for (int64_t k = 0; k < in[0].numel(); ++k) {
            const int64_t index = in[0].i[size_t(k)];
            if (index < 0 || index >= p.classes) continue;
            if (out[0].is_float())
              out[0].f[size_t(k * p.classes + index)] = 1;
            else
              out[0].i[size_t(k * p.classes + index)] = 1;
          }
        },
    .saves = none("no gradient"),
    .gradient = no_gradient("integer input"),
    .cost =
        [](auto&, Types in, Types out) {
          return Cost{0, traffic(in, out)};
        },
    .fusion = opaque("adds an axis"),
    .onnx = no_onnx("OneHot counts negative indices from the end; written with Equal"),
    .samples = {{{i64({4}, 0, 3)}, {.classes = 3}},
                {{i32({2, 3}, -2, 6)}, {.classes = 4, .dtype = DType::f64}},
                {{i64({}, 0, 2)}, {.classes = 2, .dtype = DType::boolean}},
                {{i64({0, 2}, 0, 2)}, {.classes = 5}}},
    .decompose =
        [](auto& p, std::span<const Tensor> in) {
          const Tensor classes = iota({p.classes}, 0, in[0].dtype());
          return std::vector{cast(equal(unsqueeze(in[0], -1), classes), p.dtype)};
        },
});

}  // namespace ops

Tensor full(const Shape& shape, double value, DType dtype) {
  return apply1(ops::full_op, {}, ops::FullParams{shape, value, dtype});
}
Tensor iota(const Shape& shape, int64_t axis, DType dtype) {
  return apply1(ops::iota_op, {}, ops::IotaParams{shape, axis, dtype});
}
Tensor one_hot(const Arg& indices, int64_t classes, DType dtype) {
  return apply1(ops::one_hot_op, {indices.tensor(DType::i64)}, ops::OneHotParams{classes, dtype},
                indices.site());
}
Tensor zeros_like(const Arg& x) { return full(x.tensor().shape(), 0, x.tensor().dtype()); }
Tensor ones_like(const Arg& x) { return full(x.tensor().shape(), 1, x.tensor().dtype()); }

}  // namespace cairn
