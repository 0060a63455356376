// SPDX-License-Identifier: Apache-2.0
#include "train/deferred.h"

#include <cairn/ops.h>

namespace cairn::train {

std::vector<Tensor> DeferredAssigns::apply(const OpCall& call) {
  InterpreterScope scope(next_);
  return next_.apply(call);
}

Tensor DeferredAssigns::read(const Variable& variable) {
  for (const auto& [v, value] : pending_)
    if (v == variable) return value;
  InterpreterScope scope(next_);
  return next_.read(variable);
}

void DeferredAssigns::assign(const Variable& variable, const Tensor& value) {
  for (auto& [v, pending] : pending_)
    if (v == variable) return void(pending = value);
  pending_.emplace_back(variable, value);
}

void DeferredAssigns::commit(const Tensor& apply) {
  InterpreterScope scope(next_);
  for (const auto& [variable, value] : pending_)
    variable.assign(select(apply, value, variable.read()));
  pending_.clear();
}

}  // namespace cairn::train
