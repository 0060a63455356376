// SPDX-License-Identifier: Apache-2.0
// Lesson 1: tensors are immutable values; operators are functions; errors name your line.
#include <cairn/cairn.h>

#include <iostream>

using namespace cairn;

int main() {
  const Tensor a = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor b = a * 2.0 + 1.0;                 // a number takes the dtype of the other side
  std::cout << b.to_string() << "\n";
  std::cout << transpose(a).to_string() << "\n";  // a view: shares memory with a
  std::cout << sum(a, {0}).to_string() << "\n";
  std::cout << matmul(a, a, false, true).to_string() << "\n";
  try {
    matmul(a, a);
  } catch (const Error& e) {
    std::cout << "error: " << e.what() << "\n";   // operator, argument, got, expected, this file and line
  }
}
