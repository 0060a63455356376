// SPDX-License-Identifier: Apache-2.0
// Holds back assigns to variables until it is known whether a step counts, so that norm statistics
// and the like change together with the weights, or not at all.
#pragma once
#include <utility>
#include <vector>

#include "ops/interpreter.h"

namespace cairn::train {

// An interpreter above the current one. Reads see what was assigned.
class DeferredAssigns : public Interpreter {
 public:
  DeferredAssigns() : next_(current_interpreter()) {}
  std::vector<Tensor> apply(const OpCall& call) override;
  Tensor read(const Variable& variable) override;
  void assign(const Variable& variable, const Tensor& value) override;
  Interpreter* tracer() override { return next_.tracer(); }

  // Carries them out, on the interpreter beneath, where `apply` (a bool scalar) is true.
  void commit(const Tensor& apply);

 private:
  Interpreter& next_;
  std::vector<std::pair<Variable, Tensor>> pending_;  // in order of first assignment
};

}  // namespace cairn::train
