// SPDX-License-Identifier: Apache-2.0
// Softmax along one axis: y_i = exp(x_i − max x) / Σ_j exp(x_j − max x).
#include "ops/reduce/softmax.h"

#include <cmath>

#include "ops/catalog.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {

extern const OpDef softmax_op = define(OpSpec<SoftmaxParams>{
    .name = "softmax",
    .inputs = {{"x", any_float}},
    .outputs = {{"y"}},
    .infer = [](auto& p, Types in) { return normalize_axis(p.axis, in[0].shape.rank()), TypeList{in[0]}; },
    .factors =
        [](auto& p, Types in) {
          const int rank = in[0].shape.rank();
          const std::string names = axis_names(rank, {normalize_axis(p.axis, rank)});
          return names + " -> " + names;
        },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const AxisView v(in[0].shape(), normalize_axis(p.axis, in[0].shape().rank()));
          for (int64_t o = 0; o < v.outer; ++o)
            for (int64_t i = 0; i < v.inner; ++i) {
              const double* x = in[0].f.data() + o * v.length * v.inner + i;
              double* y = out[0].f.data() + o * v.length * v.inner + i;
              double top = -INFINITY, total = 0;
              for (int64_t k = 0; k < v.length; ++k) top = std::fmax(top, x[k * v.inner]);
              for (int64_t k = 0; k < v.length; ++k) total += y[k * v.inner] = std::exp(x[k * v.inner] - top);
              for (int64_t k = 0; k < v.length; ++k) y[k * v.inner] /= total;
            }
        },
    .saves = {output(0)},
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          const Tensor y = s.output(0);
          return grads(y * (dy[0] - sum(dy[0] * y, {p.axis}, Keep::yes)));
        },
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 5); },
    .fusion = row_reduction(),
    .onnx = OnnxMapping<SoftmaxParams>{"Softmax", 13,
                                       [](auto& p, Types) { return OnnxCall{{{"axis", p.axis}}, {}}; },
                                       [](const OnnxCall& c, Types) {
                                         return std::optional(SoftmaxParams{c.integer("axis", -1)});
                                       }},
    .samples = {{{f32({2, 3})}}, {{f32({4, 1, 7})}, {.axis = 1}}, {{f32({3, 4, 2})}, {.axis = 0}}, {{f32({0, 5})}}},
});

}  // namespace ops

Tensor softmax(const Arg& x, int64_t axis) {
  return apply1(ops::softmax_op, {x.tensor()}, ops::SoftmaxParams{axis}, x.site());
}

}  // namespace cairn
