// SPDX-License-Identifier: Apache-2.0
// cairn opt: the graph before and after each pass of the compiler.
#include <cairn/graph.h>
#include <fmt/format.h>

#include <iostream>

#include "base/file.h"
#include "cli/model_graph.h"
#include "cli/verbs.h"
#include "ir/graph.h"
#include "passes/pipeline.h"

namespace cairn::cli {
namespace {

struct Options {
  std::string input;
  int64_t batch = 1, imgsz = 224, classes = 1000;
  bool train = false, explain = false, list = false, full = false;
  std::string only, stop_after;
  std::vector<std::string> disable;
};

// Lines that differ, as `diff` shows them: longest common subsequence is dear, so equal heads and tails go
// and the middle is shown whole when it is short.
void print_stage(std::string_view name, const std::string& text, bool changed) {
  std::cout << fmt::format("── after {}{}\n", name, changed ? "" : " (unchanged)") << (changed ? text : "");
}

void run(const Options& o) {
  if (o.list) {
    for (const auto& pass : passes::pipeline()) std::cout << fmt::format("{:<22} {}\n", pass.name, pass.why);
    return;
  }
  if (o.input.empty())
    fail(ErrorCode::invalid_argument, "opt: nothing to compile", "Give a model name, an .onnx file or a graph text file");
  const GraphPtr graph = load_graph(o.input, {o.batch, o.imgsz, o.classes, o.train});
  CompileOptions options;
  options.disabled_passes = o.disable;
  std::string previous;
  bool stopped = false;
  options.on_pass = [&](std::string_view name, const std::function<std::string()>& text) {
    if (stopped) return;
    if (o.only.empty() || o.only == name) {
      std::string now = text();
      print_stage(name, now, now != previous);
      previous = std::move(now);
    } else if (!o.only.empty()) {
      previous = text();
    }
    stopped = name == o.stop_after;
  };
  if (o.explain) {
    options.on_pass = {};
    for (const auto& v : graph->variables)
      if (!v.variable.defined())
        fail(ErrorCode::invalid_argument, "opt: a graph from text has unbound variables and cannot be planned",
             "Leave --explain out");
    std::cout << Plan(graph, options).explain();
    return;
  }
  Graph copy = *graph;
  passes::run_pipeline(copy, options);
}

}  // namespace

void add_opt(CLI::App& app) {
  auto o = std::make_shared<Options>();
  auto* verb = app.add_subcommand("opt", "Print the graph before and after each compiler pass");
  verb->add_option("input", o->input, "model name (resnet18 …), model.onnx, or a graph in text form (.txt)");
  verb->add_option("--batch", o->batch, "batch size")->capture_default_str()->check(CLI::Range(1, 4096));
  verb->add_option("--imgsz", o->imgsz, "picture size")->capture_default_str()->check(CLI::Range(1, 4096));
  verb->add_option("--classes", o->classes, "classes of a named model")->capture_default_str();
  verb->add_flag("--train", o->train, "the whole training step of a named model, not inference");
  verb->add_option("--only", o->only, "show one pass only");
  verb->add_option("--stop-after", o->stop_after, "show nothing after this pass");
  verb->add_option("--disable", o->disable, "leave a pass out (may repeat)");
  verb->add_flag("--explain", o->explain, "show the plan: kernels, layouts, bytes, refusals");
  verb->add_flag("--list", o->list, "list the passes, and why each stands where it does");
  verb->footer("Examples:\n  cairn opt resnet18 --train --batch 8 --only fuse-norm-act\n  cairn opt runs/cells/model.onnx --explain");
  verb->callback([o] { run(*o); });
}

}  // namespace cairn::cli
