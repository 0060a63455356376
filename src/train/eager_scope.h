// SPDX-License-Identifier: Apache-2.0
// Threads and determinism of eager calls, as compile options ask, for a scope.
#pragma once
#include <cairn/graph.h>

#include "base/parallel.h"
#include "runtime/interpreter.h"

namespace cairn::train {

class EagerScope {
 public:
  explicit EagerScope(const CompileOptions& o) {
    if (o.threads > 0) set_thread_count(o.threads);
    set_eager_deterministic(o.deterministic);
  }
  ~EagerScope() {
    set_thread_count(threads_);
    set_eager_deterministic(deterministic_);
  }
  EagerScope(const EagerScope&) = delete;

 private:
  int threads_ = thread_count();
  bool deterministic_ = eager_deterministic();
};

}  // namespace cairn::train
