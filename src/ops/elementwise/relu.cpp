// SPDX-License-Identifier: Apache-2.0
// ReLU, and its gradient as an operator of its own, so that the compiler can fuse it.
#include "ops/catalog.h"
#include "ops/elementwise/unary.h"

namespace cairn {
namespace ops {

extern const OpDef relu_op = unary(Unary<NoParams>{
    .name = "relu",
    .real = [](auto&, double x) { return x < 0 ? 0 : x; },  // NaN stays NaN
    .integer = [](auto&, int64_t x) { return x < 0 ? 0 : x; },
    .saves = {output(0)},
    .gradient =
        [](auto&, auto& dy, auto& y) {
          return apply1(relu_grad_op, {dy, y});
        },
    .onnx = onnx_plain("Relu", 14),
});

// dy where y > 0, else 0.
extern const OpDef relu_grad_op = define(OpSpec<NoParams>{
    .name = "relu_grad",
    .inputs = {{"dy", any_float}, {"y", any_float}},
    .outputs = {{"dx"}},
    .infer = [](auto&, Types in) { return slope_type(in, "y"); },
    .factors = [](auto&, Types in) { return broadcast_factors(in, in[0].shape); },
    .reference =
        [](auto&, RefIn in, RefOut out) {
          for (size_t k = 0; k < out[0].f.size(); ++k)
            out[0].f[k] = in[1].f[k] > 0 ? in[0].f[k] : 0;
        },
    .saves = {input(1)},
    .gradient =
        [](auto&, const Saved& s, std::span<const Tensor> dy) {
          return grads(apply1(relu_grad_op, {dy[0], s.input(1)}), Tensor());  // flat in y
        },
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 1); },
    .fusion = elementwise(),
    .onnx = no_onnx("used by gradients only; written with Where"),
    .samples = {{{f32({2, 3}), f32({2, 3})}},
                {{f32({0, 4}), f32({0, 4})}},
                {{f32({3, 1, 5}), f32({3, 1, 5})}}},
    .decompose =
        [](auto&, std::span<const Tensor> in) { return std::vector{select(in[1] > 0, in[0], 0)}; },
});

}  // namespace ops

Tensor relu(const Arg& x) { return apply1(ops::relu_op, {x.tensor()}, {}, x.site()); }

}  // namespace cairn
