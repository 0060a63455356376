// SPDX-License-Identifier: Apache-2.0
// Threads and choice of kernels of eager calls, as compile options ask, for a scope.
#pragma once
#include <cairn/graph.h>

#include "base/parallel.h"
#include "runtime/interpreter.h"

namespace cairn::train {

class EagerScope {
 public:
  explicit EagerScope(const CompileOptions& o) {
    if (o.threads > 0) set_thread_count(o.threads);
    set_eager_rules({o.deterministic, o.exact});
  }
  ~EagerScope() {
    set_thread_count(threads_);
    set_eager_rules(rules_);
  }
  EagerScope(const EagerScope&) = delete;

 private:
  int threads_ = thread_count();
  EagerRules rules_ = eager_rules();
};

}  // namespace cairn::train
