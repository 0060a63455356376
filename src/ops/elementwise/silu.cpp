// SPDX-License-Identifier: Apache-2.0
// SiLU, x σ(x) (Elfwing et al., 2017), and its gradient as an operator of its own, so that the compiler can fuse it.
#include <cmath>

#include "ops/catalog.h"
#include "ops/elementwise/unary.h"

namespace cairn {
namespace ops {

extern const OpDef silu_op = unary(Unary<NoParams>{
    .name = "silu",
    .real = [](auto&, double x) { return x * logistic(x); },
    .saves = {input(0)},
    .gradient =
        [](auto&, auto& dy, auto& x) {
          return apply1(silu_grad_op, {dy, x});
        },
    .flops = kTranscendental + 1,
    .onnx = no_onnx("written as x · Sigmoid(x)"),
    .decompose = [](auto&, auto& x) { return x * sigmoid(x); },
});

// dy σ(x) (1 + x (1 − σ(x))).
extern const OpDef silu_grad_op = define(OpSpec<NoParams>{
    .name = "silu_grad",
    .inputs = {{"dy", any_float}, {"x", any_float}},
    .outputs = {{"dx"}},
    .infer = [](auto&, Types in) { return slope_type(in, "x"); },
    .factors = [](auto&, Types in) { return broadcast_factors(in, in[0].shape); },
    .reference =
        [](auto&, RefIn in, RefOut out) {
          for (size_t k = 0; k < out[0].f.size(); ++k) {
            const double x = in[1].f[k], s = logistic(x);
            out[0].f[k] = in[0].f[k] * (s * (1 + x * (1 - s)));
          }
        },
    .saves = {input(0), input(1)},
    .gradient =
        [](auto&, const Saved& saved, std::span<const Tensor> dy) {
          const Tensor &g = saved.input(0), &x = saved.input(1), s = sigmoid(x);
          return grads(apply1(silu_grad_op, {dy[0], x}), dy[0] * g * (s * (1 - s) * (2 + x * (1 - 2 * s))));
        },
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, kTranscendental + 5); },
    .fusion = elementwise(),
    .onnx = no_onnx("used by gradients only; written with Sigmoid"),
    .samples = {{{f32({2, 3}), f32({2, 3})}},
                {{f32({0, 4}), f32({0, 4})}},
                {{f32({3, 1, 5}), f32({3, 1, 5})}}},
    .decompose =
        [](auto&, std::span<const Tensor> in) {
          const Tensor s = sigmoid(in[1]);
          return std::vector{in[0] * (s * (1 + in[1] * (1 - s)))};
        },
});

}  // namespace ops

Tensor silu(const Arg& x) { return apply1(ops::silu_op, {x.tensor()}, {}, x.site()); }

}  // namespace cairn
