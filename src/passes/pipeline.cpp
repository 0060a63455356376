// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "passes/eliminate_common.h"
#include "passes/eliminate_dead.h"
#include "passes/fold_constants.h"
#include "passes/fold_norm.h"
#include "passes/fuse_conv.h"
#include "passes/fuse_elementwise.h"
#include "passes/fuse_norm_act.h"
#include "passes/schedule.h"
#include "passes/simplify.h"

namespace cairn::passes {
namespace {

constexpr Pass kPipeline[] = {
    {"eliminate-dead", eliminate_dead, "traces record values that nobody asks for; drop them before any work"},
    {"simplify", simplify, "gradient rules leave x*1 and reshapes behind"},
    {"fold-constants", fold_constants, "after simplify, so that no folded value is thrown away"},
    {"eliminate-common", eliminate_common, "forward and backward compute some values twice"},
    {"fold-norm", fold_norm, "inference: before fuse-conv, which wants the bias that this makes"},
    {"fuse-conv", fuse_conv, "before fuse-elementwise would take the add and the activation"},
    {"fuse-norm-act", fuse_norm_act, "training: likewise"},
    {"fuse-elementwise", fuse_elementwise, "what is left of elementwise chains, optimiser updates among them"},
    {"eliminate-dead-again", eliminate_dead, "rewrites leave calls without readers"},
    {"schedule", schedule, "last, since every rewrite may change what depends on what"},
};

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

void run_pipeline(Graph& graph, const CompileOptions& options) {
  for (const std::string& name : options.disabled_passes)
    if (std::ranges::none_of(kPipeline, [&](const Pass& p) { return p.name == name; })) {
      std::string known;
      for (const Pass& p : kPipeline) known += (known.empty() ? "" : " ") + std::string(p.name);
      fail(ErrorCode::invalid_argument, "passes: there is no pass '" + name + "'", "The passes are: " + known);
    }
  verify(graph);
  const auto tell = [&](std::string_view name) {
    if (options.on_pass) options.on_pass(name, [&] { return print(graph); });
  };
  tell("trace");
  for (const Pass& pass : kPipeline) {
    if (std::ranges::find(options.disabled_passes, pass.name) != options.disabled_passes.end()) continue;
    const auto start = std::chrono::steady_clock::now();
    const PassReport report = pass.run(graph);
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    log(LogLevel::debug, "passes", fmt::format("{}: {} changes, {:.1f} ms", pass.name, report.changes, seconds * 1e3));
    try {
      verify(graph);
    } catch (Error& e) {
      throw e.add_frame("pass " + std::string(pass.name));
    }
    tell(pass.name);
  }
}

}  // namespace cairn::passes
