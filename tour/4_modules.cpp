// SPDX-License-Identifier: Apache-2.0
// Lesson 4: modules own Variables and have names; a step is forward, loss, backward and update in one graph.
#include <cairn/cairn.h>

#include <iostream>

using namespace cairn;

struct Net : nn::Module {
  nn::Linear first{this, "first", 2, 16};
  nn::Linear second{this, "second", 16, 2};
  Tensor forward(const Tensor& x) override { return second(tanh(first(x))); }
};

int main() {
  // XOR: the smallest task that needs a hidden layer.
  const Tensor x = Tensor::from<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});
  const Tensor y = Tensor::from<int64_t>({0, 1, 1, 0}, {4});
  Net net;
  for (const Variable& v : net.variables()) std::cout << v.name() << " " << to_string(v.type()) << "\n";
  train::Step step(net, loss::cross_entropy(), optim::adam({.lr = 0.05}));
  double loss = 0;
  for (int i = 0; i < 200; ++i) loss = step.update(x, y, 0.05).loss;
  std::cout << "loss " << loss << ", classes " << argmax(net(x)).to_string() << "\n";
  return loss < 0.1 ? 0 : 1;
}
