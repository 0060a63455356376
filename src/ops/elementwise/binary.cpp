// SPDX-License-Identifier: Apache-2.0
// The table of arithmetic on two operands: add sub mul div pow maximum minimum.
#include "ops/elementwise/binary.h"

#include <cmath>

#include "ops/catalog.h"

namespace cairn {
namespace ops {

OpDef binary(Binary b, const char* file) {
  std::vector<SampleOf<NoParams>> samples;
  const auto add_sample = [&](const Shape& x, const Shape& y) {
    if (b.dtypes == boolean_only)
      samples.push_back({{boolean(x), boolean(y)}});
    else
      samples.push_back({{f32(x, b.low, b.high), f32(y)}});
  };
  for (auto& [x, y] : std::initializer_list<std::pair<Shape, Shape>>{
           {{2, 3}, {2, 3}}, {{4, 1, 5}, {3, 1}}, {{}, {2, 3}}, {{3, 2}, {}}, {{0, 5}, {5}}})
    add_sample(x, y);
  if (b.dtypes & any_integer) samples.push_back({{i32({3, 4}, -9, 9), i32({4}, -3, 4)}});
  OpSpec<NoParams> spec{
      .name = b.name,
      .inputs = {{"a", b.dtypes}, {"b", b.dtypes}},
      .outputs = {{"y"}},
      .infer =
          [result = b.result](auto&, Types in) {
            check_same_dtype(in, {"a", "b"});
            return TypeList{{result.value_or(in[0].dtype), broadcast_inputs(in, {"a", "b"})}};
          },
      .factors =
          [](auto&, Types in) {
            return broadcast_factors(in, broadcast(in[0].shape, in[1].shape));
          },
      .reference =
          [real = b.real, integer = b.integer](auto&, RefIn in, RefOut out) {
            const BroadcastIndex a(in[0].shape(), out[0].shape()), b(in[1].shape(), out[0].shape());
            for (int64_t k = 0; k < out[0].numel(); ++k) {
              const auto x = size_t(a(k)), y = size_t(b(k));
              if (!in[0].is_float())
                out[0].i[size_t(k)] = integer(in[0].i[x], in[1].i[y]);
              else if (out[0].is_float())
                out[0].f[size_t(k)] = real(in[0].f[x], in[1].f[y]);
              else
                out[0].i[size_t(k)] = real(in[0].f[x], in[1].f[y]) != 0;
            }
          },
      .saves = std::move(b.saves),
      .gradient = std::move(b.gradient),
      .cost = [flops = b.flops](auto&, Types in,
                                Types out) { return elementwise_cost(in, out, flops); },
      .fusion = elementwise(),
      .onnx = std::move(b.onnx),
      .samples = std::move(samples),
  };
  if (b.decompose)
    spec.decompose = [f = std::move(b.decompose)](auto&, std::span<const Tensor> in) {
      return std::vector{f(in[0], in[1])};
    };
  return define(std::move(spec), file);
}

Tensor call_binary(const OpDef& op, const Arg& a, const Arg& b) {
  auto [x, y] = matched(a, b);
  return apply1(op, {x, y}, {}, a.site());
}

namespace {

// The gradients of a and b, each made only when wanted, summed back over what was broadcast.
template <class A, class B>
Grads pair(const Saved& s, A&& a, B&& b) {
  Grads g(2);
  if (s.needs(0)) g[0] = unbroadcast(a(), s.input_type(0).shape);
  if (s.needs(1)) g[1] = unbroadcast(b(), s.input_type(1).shape);
  return g;
}

// To the greater one; shared evenly when they are equal.
Tensor to_winner(const Tensor& wins, const Tensor& ties, const Tensor& dy) {
  return select(wins, dy, select(ties, dy * 0.5, 0));
}

}  // namespace

extern const OpDef add_op = binary({
    .name = "add",
    .real = [](double a, double b) { return a + b; },
    .integer = [](int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); },
    .saves = none("linear"),
    .gradient =
        [](auto&, const Saved& s, std::span<const Tensor> dy) {
          return pair(
              s, [&] { return dy[0]; }, [&] { return dy[0]; });
        },
    .onnx = onnx_plain("Add", 14),
});

extern const OpDef sub_op = binary({
    .name = "sub",
    .real = [](double a, double b) { return a - b; },
    .integer = [](int64_t a, int64_t b) { return int64_t(uint64_t(a) - uint64_t(b)); },
    .saves = none("linear"),
    .gradient =
        [](auto&, const Saved& s, std::span<const Tensor> dy) {
          return pair(
              s, [&] { return dy[0]; }, [&] { return -dy[0]; });
        },
    .onnx = onnx_plain("Sub", 14),
});

extern const OpDef mul_op = binary({
    .name = "mul",
    .real = [](double a, double b) { return a * b; },
    .integer = [](int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); },
    .saves = {input(0), input(1)},
    .gradient =
        [](auto&, const Saved& s, std::span<const Tensor> dy) {
          return pair(
              s, [&] { return dy[0] * s.input(1); }, [&] { return dy[0] * s.input(0); });
        },
    .onnx = onnx_plain("Mul", 14),
});

extern const OpDef div_op = binary({
    .name = "div",
    .real = [](double a, double b) { return a / b; },
    // By −1 it is a negation, which wraps where the quotient would not fit.
    .integer = [](int64_t a,
                  int64_t b) { return b == 0    ? 0
                                      : b == -1 ? int64_t(-uint64_t(a))
                                                : a / b; },
    .saves = {input(1), output(0)},
    .gradient =
        [](auto&, const Saved& s, std::span<const Tensor> dy) {
          const Tensor da = dy[0] / s.input(1);
          return pair(
              s, [&] { return da; }, [&] { return -da * s.output(0); });
        },
    .onnx = onnx_plain("Div", 14),
});

extern const OpDef pow_op = binary({
    .name = "pow",
    .dtypes = any_float,
    .real = [](double a, double b) { return std::pow(a, b); },
    .saves = {input(0), input(1), output(0)},
    .gradient =
        [](auto&, const Saved& s, std::span<const Tensor> dy) {
          const Tensor a = s.input(0), b = s.input(1);
          return pair(
              s,
              [&] {  // b a^(b−1), and 0 for 0⁰
                const Tensor base = select(logical_and(equal(a, 0), equal(b, 0)), 1, a);
                return dy[0] * b * pow(base, b - 1);
              },
              [&] {  // y log a, and 0 for a = 0
                return dy[0] * s.output(0) * log(select(equal(a, 0), 1, a));
              });
        },
    .flops = 20,
    .onnx = onnx_plain("Pow", 15),
    .low = 0.2,
});

extern const OpDef maximum_op = binary({
    .name = "maximum",
    .real = [](double a, double b) { return std::isnan(a) || a > b ? a : b; },
    .integer = [](int64_t a, int64_t b) { return a > b ? a : b; },
    .saves = {input(0), input(1)},
    .gradient =
        [](auto&, const Saved& s, std::span<const Tensor> dy) {
          const Tensor a = s.input(0), b = s.input(1), ties = equal(a, b);
          return pair(
              s, [&] { return to_winner(a > b, ties, dy[0]); },
              [&] { return to_winner(a < b, ties, dy[0]); });
        },
    .onnx = onnx_plain("Max", 13),
});

extern const OpDef minimum_op = binary({
    .name = "minimum",
    .real = [](double a, double b) { return std::isnan(a) || a < b ? a : b; },
    .integer = [](int64_t a, int64_t b) { return a < b ? a : b; },
    .saves = {input(0), input(1)},
    .gradient =
        [](auto&, const Saved& s, std::span<const Tensor> dy) {
          const Tensor a = s.input(0), b = s.input(1), ties = equal(a, b);
          return pair(
              s, [&] { return to_winner(a < b, ties, dy[0]); },
              [&] { return to_winner(a > b, ties, dy[0]); });
        },
    .onnx = onnx_plain("Min", 13),
});

}  // namespace ops

std::pair<Tensor, Tensor> matched(const Arg& a, const Arg& b) {
  if (a.is_number() && !b.is_number() && b.tensor())
    return {a.tensor(b.tensor().dtype()), b.tensor()};
  if (b.is_number() && !a.is_number() && a.tensor())
    return {a.tensor(), b.tensor(a.tensor().dtype())};
  return {a.tensor(), b.tensor()};
}

Tensor add(const Arg& a, const Arg& b) { return ops::call_binary(ops::add_op, a, b); }
Tensor sub(const Arg& a, const Arg& b) { return ops::call_binary(ops::sub_op, a, b); }
Tensor mul(const Arg& a, const Arg& b) { return ops::call_binary(ops::mul_op, a, b); }
Tensor div(const Arg& a, const Arg& b) { return ops::call_binary(ops::div_op, a, b); }
Tensor pow(const Arg& a, const Arg& b) { return ops::call_binary(ops::pow_op, a, b); }
Tensor maximum(const Arg& a, const Arg& b) { return ops::call_binary(ops::maximum_op, a, b); }
Tensor minimum(const Arg& a, const Arg& b) { return ops::call_binary(ops::minimum_op, a, b); }

}  // namespace cairn
