// SPDX-License-Identifier: Apache-2.0
// cairn bench: the speed and memory of training steps and of inference, on inputs in memory.
#include <cairn/models.h>
#include <cairn/train.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/model_graph.h"
#include "cli/verbs.h"
#include "inspect/profile.h"
#include "ir/graph.h"

namespace cairn::cli {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t(usage.ru_maxrss) * 1024;
}

nlohmann::json summary(std::vector<double> seconds) {
  nlohmann::json out{{"all", seconds}};
  std::ranges::sort(seconds);
  out["min"] = seconds.front();
  out["median"] = seconds[seconds.size() / 2];
  return out;
}

void report(const nlohmann::json& result, bool json) {
  if (json) {
    std::cout << result.dump() << "\n";
    return;
  }
  for (const auto& [key, value] : result.items()) std::cout << fmt::format("{:<16} {}\n", key, value.dump());
}

struct Train {
  std::string model = "resnet50", optimizer = "sgd:lr=0.01,momentum=0.9", mode = "graph", maths = "fast";
  int64_t batch = 8, imgsz = 224, classes = 1000, steps = 8;
  int threads = 0;
  bool deterministic = false, json = false;
  std::string profile;
};

void train_steps(const Train& o) {
  const int threads = apply_threads(o.threads);
  const auto net = models::make(o.model, {.classes = o.classes, .input_size = o.imgsz});
  const auto config = optim::parse(o.optimizer);
  train::StepOptions options{.mode = o.mode == "eager" ? Mode::eager : Mode::graph};
  options.compile.threads = threads;
  options.compile.deterministic = o.deterministic;
  options.compile.exact = o.maths == "exact";
  train::Step step(*net, loss::cross_entropy(), config, options);
  // The picture is noise that a seed repeats; the labels go round.
  const Tensor x = nn::draw({nn::Distribution::Kind::normal, 0, 1}, {DType::f32, {o.batch, 3, o.imgsz, o.imgsz}}, 0, "x");
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < o.batch; ++i) labels.push_back(i % o.classes);
  const Tensor y = Tensor::from(labels, {o.batch});
  std::vector<double> seconds, losses;
  double first = 0;
  std::unique_ptr<inspect::Profile> profile;
  for (int64_t k = 0; k <= o.steps && !interrupted(); ++k) {
    if (k == 1 && !o.profile.empty()) profile = std::make_unique<inspect::Profile>();
    const auto start = Clock::now();
    losses.push_back(step.update(x, y, *config.options.lr).loss);
    (k == 0 ? first : seconds.emplace_back()) = seconds_since(start);
    if (!o.json) std::cerr << fmt::format("\rstep {} of {}", k, o.steps) << std::flush;
  }
  if (!o.json) std::cerr << "\n";
  if (interrupted()) set_exit_code(130);
  if (seconds.empty()) return;
  if (profile) {
    write_file(o.profile, profile->chrome_trace());
    std::cerr << profile->table();
  }
  const auto times = summary(seconds);
  const PlanStats stats = step.stats();
  report({{"model", o.model}, {"batch", o.batch}, {"imgsz", o.imgsz}, {"threads", threads}, {"mode", o.mode},
          {"first_step_s", first}, {"compile_s", stats.compile_seconds}, {"step_s", times},
          {"images_per_s", double(o.batch) / times["min"].get<double>()}, {"peak_rss_bytes", peak_rss_bytes()},
          {"arena_bytes", stats.arena_bytes}, {"kernels", stats.kernels}, {"reorders", stats.reorders}, {"loss", losses}},
         o.json);
}

struct Infer {
  std::string input, maths = "fast";
  GraphOptions graph;
  int64_t runs = 20;
  int threads = 0;
  bool json = false;
};

void infer(const Infer& o) {
  const int threads = apply_threads(o.threads);
  const auto start = Clock::now();
  const GraphPtr graph = load_graph(o.input, o.graph);
  Plan plan(graph, {.threads = threads, .exact = o.maths == "exact"});
  const double compile = seconds_since(start);
  std::vector<Tensor> in;
  for (const TensorType& type : graph->types(graph->inputs))
    in.push_back(is_float(type.dtype) ? nn::draw({nn::Distribution::Kind::normal, 0, 1}, type, 0, "x")
                                      : Tensor::zeros(type.shape, type.dtype));
  std::vector<double> seconds;
  double first = 0;
  for (int64_t k = 0; k <= o.runs && !interrupted(); ++k) {
    const auto begin = Clock::now();
    plan.run(in);
    (k == 0 ? first : seconds.emplace_back()) = seconds_since(begin);
  }
  if (interrupted()) set_exit_code(130);
  if (seconds.empty()) return;
  const auto times = summary(seconds);
  report({{"model", o.input}, {"batch", o.graph.batch}, {"threads", threads}, {"compile_s", compile}, {"first_run_s", first},
          {"run_s", times}, {"images_per_s", double(o.graph.batch) / times["min"].get<double>()},
          {"peak_rss_bytes", peak_rss_bytes()}, {"arena_bytes", plan.stats().arena_bytes}},
         o.json);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto* verb = app.add_subcommand("bench", "Measure speed and memory");
  verb->require_subcommand(1);
  auto t = std::make_shared<Train>();
  auto* train = verb->add_subcommand("train", "Training steps on a batch in memory");
  train->add_option("--model", t->model)->capture_default_str();
  train->add_option("--batch", t->batch)->check(CLI::Range(1, 4096))->capture_default_str();
  train->add_option("--imgsz", t->imgsz)->check(CLI::Range(1, 4096))->capture_default_str();
  train->add_option("--classes", t->classes)->check(CLI::Range(1, 1000000))->capture_default_str();
  train->add_option("--steps", t->steps, "measured steps, after the first")->check(CLI::Range(1, 1000000))->capture_default_str();
  train->add_option("--optimizer", t->optimizer)->capture_default_str();
  train->add_option("--mode", t->mode)->check(CLI::IsMember({"eager", "graph"}))->capture_default_str();
  add_threads(train, t->threads);
  train->add_flag("--deterministic", t->deterministic, "same bits for any number of threads");
  add_maths(train, t->maths);
  train->add_option("--profile", t->profile, "write a Chrome trace of the measured steps, and show the dearest operators");
  train->add_flag("--json", t->json);
  train->footer("Example:\n  cairn bench train --model resnet50 --batch 8 --imgsz 224 --steps 8 --threads 2 --json");
  train->callback([t] { train_steps(*t); });
  auto i = std::make_shared<Infer>();
  auto* run = verb->add_subcommand("infer", "Inference on a batch in memory");
  run->add_option("model", i->input, "model.onnx or a model name")->required();
  run->add_option("--batch", i->graph.batch)->check(CLI::Range(1, 4096))->capture_default_str();
  run->add_option("--imgsz", i->graph.imgsz, "of a named model")->check(CLI::Range(1, 4096))->capture_default_str();
  run->add_option("--classes", i->graph.classes, "of a named model")->capture_default_str();
  run->add_option("--runs", i->runs)->check(CLI::Range(1, 1000000))->capture_default_str();
  add_threads(run, i->threads);
  add_maths(run, i->maths);
  run->add_flag("--json", i->json);
  run->footer("Example:\n  cairn bench infer runs/cells/model.onnx --batch 8 --threads 2 --json");
  run->callback([i] { infer(*i); });
}

}  // namespace cairn::cli
