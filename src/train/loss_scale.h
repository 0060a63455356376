// SPDX-License-Identifier: Apache-2.0
// scaled gradients → safe gradients: multiplies the loss, divides the gradients,
// finds out whether all are finite, and moves the scale. All of it in tensor operators, so that it
// is part of the step's graph. Small gradients of 16-bit training survive that way.
#pragma once
#include <cairn/train.h>

namespace cairn::train {

class LossScaler {
 public:
  explicit LossScaler(const LossScale& config);
  bool on() const { return config_.kind != LossScale::Kind::none; }
  Tensor scale(const Tensor& loss) const;
  // Divides, in f32 at least; gives whether every element of every gradient is finite.
  Tensor unscale(std::vector<Tensor>& gradients) const;
  // After a step: lowers the scale when it was not finite, raises it after enough good ones.
  void update(const Tensor& finite) const;
  double value() const;                 // now
  std::vector<Variable> state() const;  // "loss_scale/scale", "loss_scale/good_steps"

 private:
  LossScale config_;
  Variable scale_, good_steps_;
};

// Whether every element is finite: a bool scalar.
Tensor all_finite(const Tensor& x);

}  // namespace cairn::train
