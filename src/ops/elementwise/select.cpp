// SPDX-License-Identifier: Apache-2.0
// Select: a where the condition holds, else b; all three broadcast.
#include "ops/catalog.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {

extern const OpDef select_op = define(OpSpec<NoParams>{
    .name = "select",
    .inputs = {{"condition", boolean_only}, {"a"}, {"b"}},
    .outputs = {{"y"}},
    .infer =
        [](auto&, Types in) {
          check_same_dtype(in.subspan(1), {"a", "b"});
          return TypeList{{in[1].dtype, broadcast_inputs(in, {"condition", "a", "b"})}};
        },
    .factors =
        [](auto&, Types in) {
          return broadcast_factors(in, broadcast_inputs(in, {"condition", "a", "b"}));
        },
    .reference =
        [](auto&, RefIn in, RefOut out) {
          const Shape& shape = out[0].shape();
          const BroadcastIndex condition(in[0].shape(), shape), a(in[1].shape(), shape),
              b(in[2].shape(), shape);
          for (int64_t k = 0; k < out[0].numel(); ++k)
            if (in[0].i[size_t(condition(k))])
              out[0].copy(k, in[1], a(k));
            else
              out[0].copy(k, in[2], b(k));
        },
    .saves = {input(0)},
    .gradient =
        [](auto&, const Saved& s, std::span<const Tensor> dy) {
          const Tensor c = s.input(0);
          Grads g(3);
          if (s.needs(1)) g[1] = unbroadcast(select(c, dy[0], 0), s.input_type(1).shape);
          if (s.needs(2)) g[2] = unbroadcast(select(c, 0, dy[0]), s.input_type(2).shape);
          return g;
        },
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 1); },
    .fusion = elementwise(),
    .onnx = onnx_plain("Where", 16),
    .samples = {{{boolean({2, 3}), f32({2, 3}), f32({2, 3})}},
                {{boolean({4, 1}), f32({}), f32({2, 1, 5})}},
                {{boolean({}), i32({3}, -9, 9), i32({2, 3}, -9, 9)}},
                {{boolean({0, 3}), f32({1, 3}), f32({0, 1})}}},
});

}  // namespace ops

Tensor select(const Arg& condition, const Arg& a, const Arg& b) {
  auto [x, y] = matched(a, b);
  return apply1(ops::select_op, {condition.tensor(DType::boolean), x, y}, {}, condition.site());
}

}  // namespace cairn
