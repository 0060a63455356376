// SPDX-License-Identifier: Apache-2.0
// Lesson 2: a tape watches calls and plays their gradient rules backwards; tapes nest.
#include <cairn/cairn.h>

#include <iostream>

using namespace cairn;

int main() {
  const Tensor x = Tensor::from<double>({0.5, -1, 2}, {3});
  Tape outer;
  outer.watch(x);
  Tensor first;
  {
    Tape tape;
    tape.watch(x);
    first = tape.gradient(sum(x * x * x), std::vector{x})[0];
  }
  std::cout << "3x^2: " << first.to_string() << "\n";
  std::cout << "6x:   " << outer.gradient(sum(first), std::vector{x})[0].to_string() << "\n";

  // Variables are the mutable cells; a tape watches the trainable ones by itself.
  Variable w("w", Tensor::from<double>({1, 1, 1}, {3}));
  for (int step = 0; step < 50; ++step) {
    Tape tape;
    const Tensor loss = sum(square(w.read() * x - 1.0));
    w.assign(w.read() - tape.gradient(loss, std::vector<Variable>{w})[0] * 0.1);
  }
  std::cout << "w = 1/x: " << w.value().to_string() << "\n";
}
