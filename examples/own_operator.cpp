// SPDX-License-Identifier: Apache-2.0
// A program that defines its own operator with a gradient, trains through it in both modes, and prints its graph.
#include <cairn/cairn.h>
#include <cairn/extend/op.h>

#include <cmath>
#include <iostream>

using namespace cairn;

struct SnakeParams {
  double a = 1;
  static constexpr auto fields = describe(field("a", &SnakeParams::a));
};

// Snake, a periodic activation: y = x + sin²(a x) / a  (Ziyin et al., arXiv 2006.08195).
extern const OpDef snake_op = define(OpSpec<SnakeParams>{
    .name = "snake",
    .inputs = {{"x", any_float}},
    .outputs = {{"y"}},
    .infer = [](auto&, Types in) { return TypeList{in[0]}; },
    .factors =
        [](auto&, Types in) {
          std::string axes;
          for (int i = 0; i < in[0].shape.rank(); ++i) axes += std::string(i ? " " : "") + char('a' + i);
          return axes + " -> " + axes;
        },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          for (size_t i = 0; i < in[0].f.size(); ++i) {
            const double s = std::sin(p.a * in[0].f[i]);
            out[0].f[i] = in[0].f[i] + s * s / p.a;
          }
        },
    .saves = {input(0)},
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          return grads(dy[0] * (sin(s.input(0) * (2 * p.a)) + 1.0));  // sin 2ax = 2 sin ax cos ax
        },
    .cost =
        [](auto&, Types in, Types out) {
          return Cost{20.0 * double(in[0].numel()), double(in[0].bytes() + out[0].bytes())};
        },
    .fusion = opaque("the fused kernels do not know it"),
    .onnx = no_onnx("written as its parts"),
    .samples = {{{f32({2, 3})}}, {{f32({4})}, {.a = 2}}},
    .decompose =
        [](auto& p, std::span<const Tensor> in) {
          return std::vector{in[0] + square(sin(in[0] * p.a)) * (1 / p.a)};
        },
});

Tensor snake(const Arg& x, double a = 1) { return apply1(snake_op, {x.tensor()}, SnakeParams{a}, x.site()); }

int main() {
  try {
    register_op(snake_op);
    std::vector<float> xs, ys;
    for (int i = 0; i < 64; ++i) {
      xs.push_back(float(i) / 16 - 2);
      ys.push_back(std::sin(3 * xs.back()));
    }
    const Tensor x = Tensor::from(xs, {64, 1}), y = Tensor::from(ys, {64, 1});
    Variable w1("w1", nn::draw({nn::Distribution::Kind::normal, 0, 1}, {DType::f32, {32, 1}}, 1, "w1"));
    Variable b1("b1", nn::draw({nn::Distribution::Kind::normal, 0, 1}, {DType::f32, {32}}, 1, "b1"));
    Variable w2("w2", nn::draw({nn::Distribution::Kind::normal, 0, 0.2}, {DType::f32, {1, 32}}, 1, "w2"));
    const std::vector<Variable> parameters{w1, b1, w2};
    const Function step = [&](const std::vector<Tensor>& in) {
      Tape tape;
      const Tensor loss = mean(square(linear(snake(linear(in[0], w1, b1.read())), w2) - in[1]));
      const auto gradients = tape.gradient(loss, parameters);
      for (size_t i = 0; i < parameters.size(); ++i) parameters[i].assign(parameters[i].read() - gradients[i] * 0.02);
      return std::vector{loss};
    };
    std::cout << "eager    " << step({x, y})[0].item() << "\n";
    Compiled compiled(step);
    double loss = 0;
    for (int i = 0; i < 2000; ++i) loss = compiled({x, y})[0].item();
    std::cout << "compiled " << loss << " after 2000 steps\n";
    std::cout << print(*trace([](const std::vector<Tensor>& in) { return std::vector{snake(in[0])}; }, {{DType::f32, {4}}}));
    return loss < 0.1 ? 0 : 1;
  } catch (const Error& e) {
    std::cerr << e.what() << "\n";
    return exit_code(e.code());
  }
}
