// SPDX-License-Identifier: Apache-2.0
#include "ops/context.h"

#include <map>

#include "base/random.h"

namespace cairn {
namespace {
thread_local std::string path;
thread_local bool training = false;
thread_local Tensor seed, step;
thread_local std::map<std::string, uint64_t> ordinals;  // calls drawn so far, by module path
}  // namespace

const std::string& module_path() { return path; }

PathScope::PathScope(std::string_view name) : previous_length_(path.size()) {
  if (!path.empty()) path += '.';
  path += name;
}
PathScope::~PathScope() { path.resize(previous_length_); }

bool is_training() { return training; }
TrainingScope::TrainingScope(bool on) : previous_(training) { training = on; }
TrainingScope::~TrainingScope() { training = previous_; }

RandomScope::RandomScope(Tensor s, Tensor t) : seed_(seed), step_(step) {
  seed = std::move(s);
  step = std::move(t);
  ordinals.clear();
}
RandomScope::~RandomScope() {
  seed = std::move(seed_);
  step = std::move(step_);
  ordinals.clear();
}

RandomKey next_random_key() {
  const uint64_t ordinal = ordinals[path]++;
  const Tensor zero = seed ? Tensor() : Tensor::scalar(0, DType::i64);
  return {seed ? seed : zero, step ? step : zero, int64_t(mix(hash(path), ordinal) >> 1)};
}

}  // namespace cairn
