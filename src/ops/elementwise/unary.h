// SPDX-License-Identifier: Apache-2.0
// One-operand elementwise operators: what differs between them is a formula and its derivative.
#pragma once
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn::ops {

// The shape rule of f_grad(dy, other) → dx: both of one type.
inline TypeList slope_type(Types in, const char* other) {
  check_same_dtype(in, {"dy", other});
  if (in[0].shape != in[1].shape) wrong_input(other, in[1], to_string(in[0].shape) + " as input dy");
  return {in[0]};
}

template <class P>
struct Unary {
  std::string name;
  double (*real)(const P&, double);
  // In 64-bit wrapping arithmetic; null: the operator takes floats only.
  int64_t (*integer)(const P&, int64_t) = nullptr;
  Listed<SavedRef> saves;  // one value, or none
  // dx from dy and the saved value (undefined when nothing is saved).
  Facet<Tensor(const P&, const Tensor& dy, const Tensor& saved)> gradient;
  double flops = 1;  // an element
  OnnxFacet<P> onnx;
  double low = -2, high = 2;      // range of the samples
  std::vector<P> params = {P{}};  // of the samples
  std::function<Tensor(const P&, const Tensor&)> decompose = {};
};

template <class P>
OpDef unary(Unary<P> u, const char* file = __builtin_FILE()) {
  std::vector<SampleOf<P>> samples;
  for (const P& p : u.params)
    for (const Shape& s : {Shape{2, 3}, Shape{4, 1, 7}, Shape{}, Shape{0, 5}})
      samples.push_back({{f32(s, u.low, u.high)}, p});
  if (u.integer) samples.push_back({{i32({3, 5}, -9, 9)}, u.params[0]});
  OpSpec<P> spec{
      .name = u.name,
      .inputs = {{"x", u.integer ? any_number : any_float}},
      .outputs = {{"y"}},
      .infer = [](auto&, Types in) { return TypeList{in[0]}; },
      .factors =
          [](auto&, Types in) {
            const std::string names = axis_names(in[0].shape.rank());
            return names + " -> " + names;
          },
      .reference =
          [real = u.real, integer = u.integer](auto& p, RefIn in, RefOut out) {
            for (size_t k = 0; k < in[0].f.size(); ++k) out[0].f[k] = real(p, in[0].f[k]);
            for (size_t k = 0; k < in[0].i.size(); ++k) out[0].i[k] = integer(p, in[0].i[k]);
          },
      .saves = u.saves,
      .gradient = no_gradient(u.gradient.reason),
      .cost = [flops = u.flops](auto&, Types in,
                                Types out) { return elementwise_cost(in, out, flops); },
      .fusion = elementwise(),
      .onnx = std::move(u.onnx),
      .samples = std::move(samples),
  };
  if (u.gradient)
    spec.gradient = [f = u.gradient.call, saves = u.saves.items](auto& p, const Saved& s,
                                                                 std::span<const Tensor> dy) {
      return grads(f(p, dy[0],
                     saves.empty()        ? Tensor()
                     : saves[0].is_output ? s.output(0)
                                          : s.input(0)));
    };
  if (u.decompose)
    spec.decompose = [f = std::move(u.decompose)](auto& p, std::span<const Tensor> in) {
      return std::vector{f(p, in[0])};
    };
  return define(std::move(spec), file);
}

}  // namespace cairn::ops
