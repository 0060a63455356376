// SPDX-License-Identifier: Apache-2.0
// A program outside the tree, built on an installed Cairn.
#include <cairn/cairn.h>

#include <iostream>

int main() {
  using namespace cairn;
  const Tensor x = Tensor::ones({1, 3, 8, 8}), w = Tensor::ones({8, 3, 3, 3});
  const Tensor y = relu(conv2d(x, w));
  std::cout << to_string(y.type()) << " " << mean(y).item() << "\n";
  return mean(y).item() == 27 ? 0 : 1;
}
