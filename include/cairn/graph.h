// SPDX-License-Identifier: Apache-2.0
// Graphs: model code recorded, compiled and run. The same C++ runs eagerly for debugging.
#pragma once
#include <cairn/ops.h>

namespace cairn {

enum class Mode { eager, graph };

struct CompileOptions {
  int threads = 0;             // 0: thread_count() of the caller
  bool deterministic = false;  // same bits for any number of threads
  bool exact = false;          // no algorithm that rounds more than plain sums do, such as Winograd's
  std::vector<std::string> disabled_passes;
  // Called after each pass with its name and the graph's text: what `cairn opt` prints. Empty text function
  // cost: text is made only when called.
  std::function<void(std::string_view pass, const std::function<std::string()>& text)> on_pass;
};

// What a compiled plan takes.
struct PlanStats {
  size_t arena_bytes = 0;      // temporaries, planned by lifetime
  size_t variable_bytes = 0;
  int kernels = 0, reorders = 0;
  double compile_seconds = 0;
};

// Records what `function` does with symbolic inputs of the given types.
using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
CAIRN_API GraphPtr trace(const Function& function, const std::vector<TensorType>& inputs,
                         const std::vector<std::string>& input_names = {}, const std::string& name = "main");

// The text form; parse(print(g)) is g again (variables come back unbound, by name). With `full`, constants
// of more than 16 elements are printed whole (in hexadecimal); otherwise they are elided and do not parse.
CAIRN_API std::string print(const Graph& graph, bool full = false);
CAIRN_API GraphPtr parse_graph(std::string_view text);

// Runs a graph node by node through the current interpreter.
CAIRN_API std::vector<Tensor> interpret(const Graph& graph, const std::vector<Tensor>& inputs);

// A graph compiled for its input types: passes, layouts, kernels and one memory arena, made once. One thread
// at a time. Variables it reads and assigns are updated by each call.
class CAIRN_API Plan {
 public:
  explicit Plan(const GraphPtr& graph, const CompileOptions& options = {});
  ~Plan();
  Plan(Plan&&) noexcept;
  std::vector<Tensor> run(const std::vector<Tensor>& inputs);
  const PlanStats& stats() const;
  std::string explain() const;  // one line a step: kernel, layouts, bytes, refusals

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A function compiled on first use for each set of input types; the least recently used plan is dropped
// beyond `capacity`. One thread at a time.
class CAIRN_API Compiled {
 public:
  explicit Compiled(Function function, CompileOptions options = {}, size_t capacity = 8);
  ~Compiled();
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs);
  PlanStats stats() const;  // of the plan that ran last
  std::string explain() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
