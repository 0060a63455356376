// SPDX-License-Identifier: Apache-2.0
// cairn eval: how well a trained run does on labelled pictures.
#include <cairn/train.h>
#include <fmt/format.h>

#include <iostream>

#include "base/file.h"
#include "cli/session.h"
#include "cli/verbs.h"

namespace cairn::cli {
namespace {

struct Options {
  std::string run, data, part = "auto", out;
  int64_t batch = 64;
  int threads = 0, workers = -1;
  double min_accuracy = -1;
  bool json = false;
};

// The pictures asked for: of the run's own data those that training never saw, of other data all.
data::Dataset select(const Options& o, const train::Recipe& r) {
  const std::string path = o.data.empty() ? r.text("data.path") : o.data;
  const bool own = std::filesystem::weakly_canonical(path) == std::filesystem::weakly_canonical(r.text("data.path"));
  data::Dataset all = data::open(path, {.classes = r.list("data.classes")});
  std::string part = o.part;
  if (part == "auto") part = own || !all.parts().empty() ? "test" : "all";
  if (part == "all") return all;
  // Unless training left the check out, the split was made over the usable pictures alone.
  if (all.parts().empty() && !r.flag("data.unchecked")) {
    auto checked = all.check({.duplicates = false, .progress = Counter("checking pictures", all.size())});
    if (checked.report.count(data::Bucket::failed) > 0) std::cerr << checked.report.summary() << "\n";
    all = std::move(checked.usable);
  }
  if (own && r.text("data.fingerprint") != fingerprint(all))
    std::cerr << "note: the pictures are not those that the run was trained with (other names, labels or sizes): some of the part may "
                 "have been trained on\n";
  const Parts parts = open_parts(all, r);
  if (part == "val" && parts.val.size() == 0)
    fail(ErrorCode::not_found, "eval: the run has no part val", "Train with --val 0.1, or take --part test");
  return part == "train" ? parts.train : part == "val" ? parts.val : parts.test;
}

void run(const Options& o) {
  apply_threads(o.threads);
  const train::RunFiles files = train::open_run(o.run);
  const auto net = load_run(files);
  if (files.weights.filename() != "best.safetensors")
    std::cerr << fmt::format("note: no epoch of this run has ended; these are the weights of {}\n", printable(files.weights));
  if (!o.out.empty()) std::filesystem::create_directories(o.out);  // what cannot be made shows now
  const data::Dataset set = select(o, files.recipe);
  const data::Transform transform = data::Transform(files.recipe.text("data.transform")).eval();
  data::Loader loader = set.map(transform).batch(o.batch, {.workers = o.workers});
  train::Trainer trainer(*net, loss::parse(files.recipe.text("train.loss")), optim::sgd());
  ProgressBar bar;
  const auto result = trainer.evaluate(loader, [&](const train::Progress& p) { bar(p), stop_if_interrupted(); });
  if (const auto report = loader.report(); report.found() > 0) std::cerr << report.summary() << "\n";
  if (!o.out.empty()) result.write_plots(o.out);
  if (o.json) std::cout << result.json() << "\n";
  else std::cout << result.table();
  if (o.min_accuracy >= 0 && result.accuracy < o.min_accuracy) {
    std::cerr << fmt::format("assertion failed: accuracy {:.4f} is below {:.4f}\n", result.accuracy, o.min_accuracy);
    set_exit_code(1);
  }
}

}  // namespace

void add_eval(CLI::App& app) {
  auto o = std::make_shared<Options>();
  auto* verb = app.add_subcommand("eval", "Measure a trained run on labelled pictures");
  verb->add_option("--run", o->run, "run directory")->required();
  verb->add_option("--data", o->data, "folder or CSV list; default: the run's own data");
  verb->add_option("--part", o->part, "auto: test of the run's own or split data, else all")->capture_default_str()->check(CLI::IsMember({"auto", "all", "train", "val", "test"}));
  verb->add_option("--batch", o->batch)->capture_default_str()->check(CLI::Range(1, 65536));
  verb->add_option("--out", o->out, "folder for confusion.png and roc.png");
  verb->add_option("--min-accuracy", o->min_accuracy, "exit with 1 when the accuracy (0 … 1) is below")->check(number(0, 1.5));
  add_threads(verb, o->threads);
  add_workers(verb, o->workers);
  verb->add_flag("--json", o->json, "metrics as JSON on standard output");
  verb->footer("Examples:\n  cairn eval --run runs/cells\n  cairn eval --run runs/cells --data pictures/test --min-accuracy 0.8");
  verb->callback([o] { run(*o); });
}

}  // namespace cairn::cli
