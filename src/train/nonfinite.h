// SPDX-License-Identifier: Apache-2.0
// Finds the first value that is not finite: an interpreter that looks at everything that passes.
#pragma once
#include <cairn/ops.h>

#include <string>

#include "ops/interpreter.h"

namespace cairn::train {

// Above the eager interpreter. Keeps the first finding; later ones follow from it.
class NonfiniteFinder : public Interpreter {
 public:
  NonfiniteFinder() : next_(current_interpreter()) {}
  std::vector<Tensor> apply(const OpCall& call) override;
  Tensor read(const Variable& variable) override;
  void assign(const Variable&, const Tensor&) override {}  // looks without effect

  void look_at_input(const std::string& name, const Tensor& x);
  void phase(std::string now) { phase_ = std::move(now); }  // "forward", "backward"
  // "log gave -inf in the forward pass at net.cpp:31 (module head), record 3 of the batch"; or
  // empty.
  const std::string& finding() const { return finding_; }

 private:
  Interpreter& next_;
  std::string finding_, phase_ = "forward";
};

}  // namespace cairn::train
