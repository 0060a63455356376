// SPDX-License-Identifier: Apache-2.0
// What surrounds a call on this thread: module path, training or evaluation, random state.
#pragma once
#include <cairn/tensor.h>

#include <string>

namespace cairn {

// The dotted path of the modules being called, e.g. "layer1.0.conv1"; "" outside.
const std::string& module_path();

// Appends a name to the path for a scope.
class PathScope {
 public:
  explicit PathScope(std::string_view name);
  ~PathScope();
  PathScope(const PathScope&) = delete;

 private:
  size_t previous_length_;
};

// Training or evaluation is a scope around the call, not a flag inside modules. Default: evaluation.
bool is_training();
class TrainingScope {
 public:
  explicit TrainingScope(bool training);
  ~TrainingScope();
  TrainingScope(const TrainingScope&) = delete;

 private:
  bool previous_;
};

// Seed and step that random operators draw from: i64 scalars, run-time inputs under a trace. Outside any
// scope: seed 0, step 0.
class RandomScope {
 public:
  RandomScope(Tensor seed, Tensor step);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;

 private:
  Tensor seed_, step_;
};
struct RandomKey {
  Tensor seed, step;  // i64 scalars
  int64_t stream;     // from module path and call ordinal within it
};
RandomKey next_random_key();

}  // namespace cairn
