// SPDX-License-Identifier: Apache-2.0
// The interpreter that records: calls become nodes, reads of variables inputs, assigns outputs.
#pragma once
#include <map>
#include <unordered_map>

#include "ir/graph.h"
#include "ops/interpreter.h"

namespace cairn {

class Tracer : public Interpreter {
 public:
  // With `outer` (branches of control flow), values and variables of what surrounds the trace become captured
  // inputs; without, values of another trace are an error and concrete tensors become constants.
  explicit Tracer(std::string name, Interpreter* outer = nullptr);

  Tensor add_input(const TensorType& type, std::string name);
  std::vector<Tensor> apply(const OpCall& call) override;
  Tensor read(const Variable& variable) override;
  void assign(const Variable& variable, const Tensor& value) override;
  Interpreter* tracer() override { return this; }

  // The value that stands for a tensor in this graph.
  ValueId value_of(const Tensor& tensor);
  const std::vector<Tensor>& captured() const { return captured_; }

  // Ends the trace: these are the graph's outputs.
  std::shared_ptr<Graph> finish(const std::vector<Tensor>& outputs);

 private:
  struct Traced;
  Tensor wrap(ValueId value, CallSite site);

  std::shared_ptr<Graph> graph_;
  std::unordered_map<uint64_t, ValueId> constants_;  // tensor id → value
  std::vector<Tensor> keep_;                         // constants' tensors, so that ids stay taken
  std::map<const Variable::Cell*, int> variables_;   // cell → index
  std::map<int, Tensor> current_;                    // variable index → its value now
  Interpreter* outer_;
  std::vector<Tensor> captured_;
};

}  // namespace cairn
