// SPDX-License-Identifier: Apache-2.0
// The interpreter stack: who carries out an operator call. Eager runs it now, trace records it, a tape
// watches it and passes it on. `runtime`, `ir` and `autodiff` implement this interface.
#pragma once
#include <cairn/extend/op.h>
#include <cairn/variable.h>

namespace cairn {

struct OpCall {
  const OpDef& op;
  std::span<const Tensor> inputs;
  const Params& params;
  Types output_types;
  CallSite site;
};

class Interpreter {
 public:
  virtual ~Interpreter() = default;
  virtual std::vector<Tensor> apply(const OpCall& call) = 0;
  virtual Tensor read(const Variable& variable) = 0;
  virtual void assign(const Variable& variable, const Tensor& value) = 0;
  // The one that records a graph, at or below this one; null when everything runs now.
  virtual Interpreter* tracer() { return nullptr; }
};

// Runs every call at once; defined in runtime/interpreter.cpp. Thread-safe.
Interpreter& eager_interpreter();

// The top of this thread's stack; eager when it is empty.
Interpreter& current_interpreter();

// Puts an interpreter on top for a scope. Scopes nest strictly.
class InterpreterScope {
 public:
  explicit InterpreterScope(Interpreter& interpreter);
  ~InterpreterScope();
  InterpreterScope(const InterpreterScope&) = delete;
  InterpreterScope& operator=(const InterpreterScope&) = delete;

 private:
  Interpreter* previous_;
};

}  // namespace cairn
