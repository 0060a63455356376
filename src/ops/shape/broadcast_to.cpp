// SPDX-License-Identifier: Apache-2.0
// Broadcast to a shape: axes of length one and new leading axes repeat. A length of −1 keeps the
// input's own, which the wrapper writes wherever it can, so that the same call fits another batch
// size.
#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

struct BroadcastParams {
  Shape shape;
  static constexpr auto fields = describe(field("shape", &BroadcastParams::shape));
};

Shape resolve(const BroadcastParams& p, const TensorType& x) {
  Shape shape = p.shape;
  const int extra = shape.rank() - x.shape.rank();
  bool good = extra >= 0;
  for (int i = 0; good && i < shape.rank(); ++i) {
    const int64_t own = i < extra ? 1 : x.shape[i - extra];
    if (shape[i] == -1 && i >= extra) shape[i] = own;
    good = shape[i] >= 0 && (own == 1 || own == shape[i]);
  }
  if (!good)
    wrong_param("shape", to_string(p.shape),
                fmt::format("a shape that input x, {}, broadcasts to", to_string(x)));
  return shape;
}

Shape opened(const Shape& x, Shape shape) {
  const int extra = shape.rank() - x.rank();
  for (int i = 0; extra >= 0 && i < x.rank(); ++i)
    if (shape[i + extra] == x[i]) shape[i + extra] = -1;
  return shape;
}

}  // namespace

extern const OpDef broadcast_to_op = define(OpSpec<BroadcastParams>{
    .name = "broadcast_to",
    .inputs = {{"x"}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          return TypeList{{in[0].dtype, resolve(p, in[0])}};
        },
    .factors =
        [](auto& p, Types in) {
          const Shape& x = in[0].shape;
          const int extra = p.shape.rank() - x.rank();
          std::string from, to;
          for (int i = 0; i < p.shape.rank(); ++i) {
            const bool kept = p.shape[i] == -1;
            if (i >= extra)
              from += kept                ? fmt::format("{} ", char('a' + i))
                      : x[i - extra] == 1 ? "1 "
                                          : fmt::format("x{}! ", i);
            to += kept ? fmt::format(" {}", char('a' + i)) : fmt::format(" y{}!", i);
          }
          return from + "->" + to;
        },
    .reference =
        [](auto&, RefIn in, RefOut out) {
          const BroadcastIndex from(in[0].shape(), out[0].shape());
          for (int64_t k = 0; k < out[0].numel(); ++k) out[0].copy(k, in[0], from(k));
        },
    .saves = none("linear"),
    .gradient =
        [](auto&, const Saved& s, std::span<const Tensor> dy) {
          return grads(unbroadcast(dy[0], s.input_type(0).shape));
        },
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 0); },
    .fusion = view_only(),
    .onnx =
        OnnxMapping<BroadcastParams>{
            "Expand", 13,
            [](auto& p, Types) {  // ONNX broadcasts both ways: 1 keeps the input's own
              Shape shape = p.shape;
              for (int i = 0; i < shape.rank(); ++i)
                if (shape[i] == -1) shape[i] = 1;
              return OnnxCall{{}, {{1, Tensor::from(shape.span(), {shape.rank()})}}};
            },
            [](const OnnxCall& c, Types in) -> std::optional<BroadcastParams> {
              if (!c.constant(1)) return std::nullopt;
              const Shape shape(c.constant(1)->template values<int64_t>());
              return BroadcastParams{opened(in[0].shape, broadcast(in[0].shape, shape))};
            }},
    .samples = {{{f32({2, 1})}, {{-1, 3}}},
                {{f32({3})}, {{4, 2, -1}}},
                {{f32({})}, {{2, 2}}},
                {{f32({4, 1, 5})}, {{2, 4, 3, 5}}},
                {{f32({1, 3})}, {{0, 3}}}},
    .view =
        [](auto& p, const StridedView& in, Types types) {
          const Shape shape = resolve(p, types[0]);
          const int extra = shape.rank() - in.shape.rank();
          Shape strides = Shape::filled(shape.rank(), 0);
          for (int i = 0; i < in.shape.rank(); ++i)
            if (in.shape[i] == shape[i + extra]) strides[i + extra] = in.strides[i];
          return std::optional(StridedView{shape, strides, in.offset});
        },
});

}  // namespace ops

Tensor broadcast_to(const Arg& x, const Shape& shape) {
  const Tensor t = x.tensor();
  if (t.defined() && t.shape() == shape) return t;
  return apply1(ops::broadcast_to_op, {t},
                ops::BroadcastParams{t.defined() ? ops::opened(t.shape(), shape) : shape},
                x.site());
}

}  // namespace cairn
