// SPDX-License-Identifier: Apache-2.0
// Gradients: a tape watches the calls of a scope and plays the operators' gradient rules backwards. The rules
// are written with operators, so a gradient taken under a trace is recorded into the same graph, and one taken
// under another tape can be differentiated again.
#pragma once
#include <cairn/ops.h>

namespace cairn {

// Watches every trainable Variable read, and each tensor given to watch(), from construction to destruction.
// One thread. Tapes nest: gradient() of the inner one is seen by the outer one.
//
//   Tape tape;
//   Tensor loss = mean(square(linear(x, weight) - target));
//   auto [dw] = … tape.gradient(loss, {weight});
class CAIRN_API Tape {
 public:
  Tape();
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  void watch(const Tensor& tensor);
  // d target / d source for each source; `seed` is the gradient of the target itself (default: ones, for which
  // target must have one element). A source that does not reach the target gets zeros. May be called more than
  // once. throws invalid_argument when the path crosses an operator without a gradient, with its reason.
  std::vector<Tensor> gradient(const Tensor& target, const std::vector<Tensor>& sources, const Tensor& seed = {});
  std::vector<Tensor> gradient(const Tensor& target, const std::vector<Variable>& sources, const Tensor& seed = {});

 private:
  class Recorder;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<class InterpreterScope> scope_;
};

}  // namespace cairn
