// SPDX-License-Identifier: Apache-2.0
// Leaky ReLU: x where x > 0, else slope · x.
#include "ops/catalog.h"
#include "ops/elementwise/unary.h"

namespace cairn {
namespace ops {
namespace {

struct LeakyReluParams {
  double slope = 0.01;
  static constexpr auto fields = describe(field("slope", &LeakyReluParams::slope));
};

}  // namespace

extern const OpDef leaky_relu_op = unary(Unary<LeakyReluParams>{
    .name = "leaky_relu",
    .real = [](auto& p, double x) { return x > 0 ? x : p.slope * x; },
    .saves = {input(0)},
    .gradient = [](auto& p, auto& dy, auto& x) { return select(x > 0, dy, dy * p.slope); },
    .flops = 2,
    .onnx = OnnxMapping<LeakyReluParams>{"LeakyRelu", 16,
                                         [](auto& p, Types) {
                                           return OnnxCall{{{"alpha", p.slope}}, {}};
                                         },
                                         [](const OnnxCall& c, Types) {
                                           return std::optional(
                                               LeakyReluParams{c.number("alpha", 0.01)});
                                         }},
    .params = {{}, {.slope = 0.2}},
});

}  // namespace ops

Tensor leaky_relu(const Arg& x, double slope) {
  return apply1(ops::leaky_relu_op, {x.tensor()}, ops::LeakyReluParams{slope}, x.site());
}

}  // namespace cairn
