// SPDX-License-Identifier: Apache-2.0
// Identity, and stop_gradient: the same value, through which no gradient flows.
#include "ops/catalog.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

OpSpec<NoParams> same_value(
    std::string name,
    Facet<Grads(const NoParams&, const Saved&, std::span<const Tensor>)> gradient) {
  return {
      .name = std::move(name),
      .inputs = {{"x"}},
      .outputs = {{"y"}},
      .infer = [](auto&, Types in) { return TypeList{in[0]}; },
      .factors = [](auto&, Types in) { return broadcast_factors(in, in[0].shape); },
      .reference =
          [](auto&, RefIn in, RefOut out) {
            out[0].f = in[0].f;
            out[0].i = in[0].i;
          },
      .saves = none("the value itself does not matter"),
      .gradient = std::move(gradient),
      .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 0); },
      .fusion = view_only(),
      .onnx = onnx_plain("Identity", 16),
      .samples = {{{f32({2, 3})}},
                  {{i32({4, 1}, -9, 9)}},
                  {{boolean({2, 2})}},
                  {{f32({0, 3})}},
                  {{f32({})}}},
      .view = [](auto&, const StridedView& in, Types) { return std::optional(in); },
  };
}

}  // namespace

extern const OpDef identity_op = define(same_value(
    "identity", [](auto&, const Saved&, std::span<const Tensor> dy) { return grads(dy[0]); }));

extern const OpDef stop_gradient_op = define([] {
  auto spec = same_value("stop_gradient",
                         [](auto&, const Saved&, std::span<const Tensor>) { return Grads(1); });
  spec.onnx.mapping->read = {};  // an Identity is read as `identity`
  return spec;
}());

}  // namespace ops

Tensor identity(const Arg& x) { return apply1(ops::identity_op, {x.tensor()}, {}, x.site()); }
Tensor stop_gradient(const Arg& x) {
  return apply1(ops::stop_gradient_op, {x.tensor()}, {}, x.site());
}

}  // namespace cairn
