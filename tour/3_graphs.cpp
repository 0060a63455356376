// SPDX-License-Identifier: Apache-2.0
// Lesson 3: the same code recorded, printed, compiled; what the passes make of it.
#include <cairn/cairn.h>

#include <iostream>

using namespace cairn;

int main() {
  const Function f = [](const std::vector<Tensor>& in) {
    return std::vector{relu(in[0] * 2.0 + in[1]) * 1.0};
  };
  const std::vector<TensorType> types{{DType::f32, {2, 3}}, {DType::f32, {3}}};
  const GraphPtr graph = trace(f, types, {"x", "b"});
  std::cout << print(*graph);
  Plan plan(graph, {.on_pass = [](std::string_view pass, const std::function<std::string()>& text) {
              if (pass == "fuse-elementwise") std::cout << "after " << pass << ":\n" << text();
            }});
  const std::vector<Tensor> in{Tensor::ones({2, 3}), Tensor::from<float>({-3, 0, 1}, {3})};
  std::cout << "eager    " << f(in)[0].to_string() << "\ncompiled " << plan.run(in)[0].to_string() << "\n";

  // A choice that depends on data is a cond: under a trace both branches are recorded.
  Compiled choose([](const std::vector<Tensor>& in) {
    return cond(sum(in[0]) > 0.0, [&] { return std::vector{in[0] * 10.0}; }, [&] { return std::vector{-in[0]}; });
  });
  std::cout << choose({Tensor::ones({2})})[0].to_string() << " " << choose({Tensor::full({DType::f32, {2}}, -1)})[0].to_string() << "\n";
}
