// SPDX-License-Identifier: Apache-2.0
// graph → fused, laid-out graph: the recipe of the compiler, in pipeline.cpp, read top to bottom.
#pragma once
#include "ir/graph.h"

namespace cairn::passes {

// What a pass did: how many rewrites, for logs and `cairn opt`.
struct PassReport {
  int changes = 0;
};

struct Pass {
  std::string_view name;
  PassReport (*run)(Graph&);
  std::string_view why;  // what it is for, and why it stands here
};
std::span<const Pass> pipeline();

// Runs every pass that is not disabled, verifying the graph after each.
void run_pipeline(Graph& graph, const CompileOptions& options);

}  // namespace cairn::passes
