// SPDX-License-Identifier: Apache-2.0
// Cast: float → integer truncates and clamps to the range (NaN → 0), integer → integer wraps, bool
// is x ≠ 0.
#include "ops/catalog.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

struct CastParams {
  DType dtype = DType::f32;
  static constexpr auto fields = describe(field("dtype", &CastParams::dtype));
};

// ONNX's numbers for element types (TensorProto.DataType), in the order of DType.
constexpr std::array<int64_t, 10> kOnnxTypes{11, 1, 10, 16, 7, 6, 5, 3, 2, 9};

}  // namespace

extern const OpDef cast_op = define(OpSpec<CastParams>{
    .name = "cast",
    .inputs = {{"x"}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          return TypeList{{p.dtype, in[0].shape}};
        },
    .factors = [](auto&, Types in) { return broadcast_factors(in, in[0].shape); },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          for (int64_t k = 0; k < in[0].numel(); ++k)
            if (is_float(p.dtype))
              out[0].f[size_t(k)] = in[0].at(k);
            else if (in[0].is_float())
              out[0].i[size_t(k)] = to_integer(in[0].f[size_t(k)], p.dtype);
            else
              out[0].i[size_t(k)] =
                  p.dtype == DType::boolean ? in[0].i[size_t(k)] != 0 : in[0].i[size_t(k)];
        },
    .saves = none("linear"),
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          const DType from = s.input_type(0).dtype;
          return grads(is_float(p.dtype) && is_float(from) ? cast(dy[0], from) : Tensor());
        },
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 1); },
    .fusion = elementwise(),
    .onnx =
        OnnxMapping<CastParams>{
            "Cast", 13,
            [](auto& p, Types) {
              return OnnxCall{{{"to", kOnnxTypes[size_t(p.dtype)]}}, {}};
            },
            [](const OnnxCall& c, Types) -> std::optional<CastParams> {
              const int64_t to = c.integer("to", 0);
              for (DType d : kAllDTypes)
                if (kOnnxTypes[size_t(d)] == to) return CastParams{d};
              fail(ErrorCode::unsupported,
                   fmt::format("cast: attribute to: got ONNX element type {}, expected a "
                               "float, signed integer, uint8 or bool type",
                               to));
            }},
    .samples = {{{f32({2, 3})}, {DType::f64}},
                {{f32({3, 1, 4}, -300, 300)}, {DType::i8}},
                {{i64({2, 5}, -300, 300)}, {DType::u8}},
                {{i32({4}, -2, 3)}, {DType::boolean}},
                {{boolean({3, 2})}, {DType::f32}},
                {{f32({0, 2})}, {DType::f16}}},
});

}  // namespace ops

Tensor cast(const Arg& x, DType dtype) {
  const Tensor t = x.tensor();
  if (t.defined() && t.dtype() == dtype) return t;
  return apply1(ops::cast_op, {t}, ops::CastParams{dtype}, x.site());
}

}  // namespace cairn
