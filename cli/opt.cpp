// SPDX-License-Identifier: Apache-2.0
// cairn opt: the graph before and after each pass of the compiler.
#include <cairn/graph.h>
#include <cairn/models.h>
#include <cairn/train.h>
#include <fmt/format.h>

#include <iostream>

#include "cli/model_graph.h"
#include "cli/verbs.h"
#include "ir/graph.h"
#include "passes/pipeline.h"

namespace cairn::cli {
namespace {

struct Options {
  std::string input, optimizer = "sgd:lr=0.1,momentum=0.9,weight_decay=0.0001";
  GraphOptions graph;
  bool train = false, explain = false, list = false;
  std::string only, stop_after;
  std::vector<std::string> disable;
};

// Prints the text after each pass that changed it.
class Printer {
 public:
  explicit Printer(const Options& o) : options_(o) {}
  void operator()(std::string_view name, const std::function<std::string()>& text) {
    if (stopped_) return;
    std::string now = text();
    if (options_.only.empty() || options_.only == name) {
      if (!options_.only.empty()) std::cout << "── before " << name << "\n" << previous_;
      std::cout << "── after " << name << (now == previous_ ? " (unchanged)\n" : "\n" + now);
    }
    previous_ = std::move(now);
    stopped_ = name == options_.stop_after;
  }

 private:
  const Options& options_;
  std::string previous_;
  bool stopped_ = false;
};

void run_training(const Options& o, const CompileOptions& compile) {
  const auto net = models::make(o.input, {.classes = o.graph.classes});
  train::Step step(*net, loss::cross_entropy(), optim::parse(o.optimizer), {.compile = compile});
  const auto n = o.graph.batch;
  step.update(Tensor::zeros({n, 3, o.graph.imgsz, o.graph.imgsz}), Tensor::zeros({n}, DType::i64), 0);
  if (o.explain) std::cout << step.explain();
}

void run(const Options& o) {
  if (o.list) {
    for (const auto& pass : passes::pipeline()) std::cout << fmt::format("{:<22} {}\n", pass.name, pass.why);
    return;
  }
  if (o.input.empty())
    fail(ErrorCode::invalid_argument, "opt: nothing to compile", "Give a model name, an .onnx file or a graph text file");
  for (const std::string& name : {o.only, o.stop_after}) {
    bool known = name.empty() || name == "trace";
    for (const auto& pass : passes::pipeline()) known = known || pass.name == name;
    if (!known) fail(ErrorCode::invalid_argument, "opt: there is no pass '" + name + "'", "See cairn opt --list");
  }
  CompileOptions compile;
  compile.disabled_passes = o.disable;
  Printer printer(o);
  compile.on_pass = [&](std::string_view name, const std::function<std::string()>& text) {
    stop_if_interrupted();
    if (!o.explain) printer(name, text);
  };
  if (o.train) return run_training(o, compile);
  const GraphPtr graph = load_graph(o.input, o.graph);
  if (!o.explain) {
    Graph copy = *graph;
    return passes::run_pipeline(copy, compile);
  }
  if (!graph->variables.empty())
    fail(ErrorCode::invalid_argument, "opt: a graph from text has unbound variables and cannot be planned",
         "Leave --explain out");
  std::cout << Plan(graph, compile).explain();
}

}  // namespace

void add_opt(CLI::App& app) {
  auto o = std::make_shared<Options>();
  auto* verb = app.add_subcommand("opt", "Print the graph before and after each compiler pass");
  verb->add_option("input", o->input, "model name (resnet18 …), model.onnx, or a file with a graph in text form");
  verb->add_option("--batch", o->graph.batch, "batch size")->capture_default_str()->check(CLI::Range(1, 4096));
  verb->add_option("--imgsz", o->graph.imgsz, "picture size")->capture_default_str()->check(CLI::Range(1, 4096));
  verb->add_option("--classes", o->graph.classes, "classes of a named model")->capture_default_str();
  verb->add_flag("--train", o->train, "the whole training step of a named model instead of inference");
  verb->add_option("--optimizer", o->optimizer, "of the training step")->capture_default_str();
  verb->add_option("--only", o->only, "show one pass only, before and after");
  verb->add_option("--stop-after", o->stop_after, "show nothing after this pass");
  verb->add_option("--disable", o->disable, "leave a pass out (may repeat)");
  verb->add_flag("--explain", o->explain, "show the plan instead: kernels, layouts, bytes, refusals");
  verb->add_flag("--list", o->list, "list the passes, and why each stands where it does");
  verb->footer("Examples:\n  cairn opt resnet18 --train --batch 8 --only fuse-norm-act\n  cairn opt runs/cells/model.onnx --explain");
  verb->callback([o] { run(*o); });
}

}  // namespace cairn::cli
