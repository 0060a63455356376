// SPDX-License-Identifier: Apache-2.0
// ELU: x where x > 0, else α (e^x − 1).
#include <cmath>

#include "ops/catalog.h"
#include "ops/elementwise/unary.h"

namespace cairn {
namespace ops {
namespace {

struct EluParams {
  double alpha = 1;
  static constexpr auto fields = describe(field("alpha", &EluParams::alpha));
};

}  // namespace

extern const OpDef elu_op = unary(Unary<EluParams>{
    .name = "elu",
    .real = [](auto& p, double x) { return x > 0 ? x : p.alpha * std::expm1(x); },
    .saves = {input(0)},
    // The minimum keeps the branch not taken finite, for second order.
    .gradient = [](auto& p, auto& dy,
                   auto& x) { return select(x > 0, dy, dy * (p.alpha * exp(minimum(x, 0)))); },
    .flops = 10,
    .onnx = OnnxMapping<EluParams>{"Elu", 6,
                                   [](auto& p, Types) {
                                     return OnnxCall{{{"alpha", p.alpha}}, {}};
                                   },
                                   [](const OnnxCall& c, Types) {
                                     return std::optional(EluParams{c.number("alpha", 1)});
                                   }},
    .params = {{}, {.alpha = 0.5}},
});

}  // namespace ops

Tensor elu(const Arg& x, double alpha) {
  return apply1(ops::elu_op, {x.tensor()}, ops::EluParams{alpha}, x.site());
}

}  // namespace cairn
