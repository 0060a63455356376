// SPDX-License-Identifier: Apache-2.0
// cairn debug step: one training step after another on given weights and a given batch, with everything written
// out: how a person compares Cairn with another framework, number by number.
#include <cairn/models.h>
#include <cairn/safetensors.h>
#include <cairn/train.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/verbs.h"

namespace cairn::cli {
namespace {

struct Options {
  std::string model = "resnet18", weights, inputs, out, mode = "graph", maths = "fast", dtype = "f32";
  std::string optimizer = "sgd:lr=0.01,momentum=0.9";
  int64_t classes = 1000, channels = 3, steps = 1, seed = 0;
  int threads = 0;
  bool deterministic = false, json = false;
};

void step(const Options& o) {
  const int threads = apply_threads(o.threads);
  refuse_overwrite(o.out, {o.inputs, o.weights});
  const DType dtype = parse_dtype(o.dtype);
  if (dtype != DType::f32 && dtype != DType::f64)
    fail(ErrorCode::dtype_unsupported, "debug step: --dtype got " + o.dtype + ", expected f32 or f64");
  const SafetensorsFile batch(o.inputs);
  const Tensor x = cast(batch.tensor("x"), dtype), y = batch.tensor("y");
  if (x.rank() != 4 || y.dtype() != DType::i64 || y.shape() != Shape{x.shape()[0]})
    fail(ErrorCode::shape_mismatch,
         fmt::format("debug step: {}: got x {} and y {}, expected x [N,C,H,W] and y i64[N]", o.inputs,
                     to_string(x.type()), to_string(y.type())));
  // Without dropout, which no two frameworks draw alike.
  const auto net = models::make(o.model, {.classes = o.classes, .in_channels = x.shape()[1], .dropout = 0.0,
                                          .input_size = x.shape()[2], .seed = uint64_t(o.seed), .dtype = dtype,
                                          .draw = o.weights.empty()});
  if (!o.weights.empty()) nn::load_weights(*net, o.weights);
  const optim::Config config = optim::parse(o.optimizer);
  train::StepOptions options{.mode = o.mode == "eager" ? Mode::eager : Mode::graph, .seed = uint64_t(o.seed)};
  options.compile.threads = threads;
  options.compile.deterministic = o.deterministic;
  options.compile.exact = o.maths == "exact";
  options.keep_gradients = true;
  train::Step trainer(*net, loss::cross_entropy(), config, options);
  NamedTensors out;
  std::vector<double> losses;
  for (int64_t k = 0; k < o.steps && !interrupted(); ++k) {
    const auto result = trainer.update(x, y, *config.options.lr);
    losses.push_back(result.loss);
    if (!o.json) std::cerr << fmt::format("step {} loss {:.9g}\n", k + 1, result.loss);
    if (k > 0) continue;
    out.emplace_back("logits", result.output.dense());
    const auto& parameters = trainer.optimizer().parameters();
    for (size_t i = 0; i < parameters.size(); ++i)
      out.emplace_back("grad/" + parameters[i].name(), result.gradients[i].dense());
  }
  out.emplace_back("loss", Tensor::from(losses, {int64_t(losses.size())}));
  for (const Variable& v : net->variables()) out.emplace_back("param/" + v.name(), v.value().dense());
  if (!o.out.empty()) write_safetensors(o.out, out);
  if (o.json) std::cout << nlohmann::json{{"loss", losses}, {"threads", threads}}.dump() << "\n";
  if (interrupted()) set_exit_code(130);
}

struct Compare {
  std::string a, b;
  double tolerance = 0;
};

// Names, types and values of two files; metadata may differ.
void compare(const Compare& o) {
  const SafetensorsFile a(o.a), b(o.b);
  int64_t different = 0, all = int64_t(a.names().size());
  const auto tell = [&](const std::string& text) { ++different, std::cout << text << "\n"; };
  for (const std::string& name : a.names()) {
    if (!b.contains(name)) {
      tell(name + ": only in " + o.a);
      continue;
    }
    const Tensor x = a.tensor(name), y = b.tensor(name);
    if (x.type() != y.type()) {
      tell(fmt::format("{}: {} and {}", name, to_string(x.type()), to_string(y.type())));
    } else if (std::memcmp(x.bytes(), y.bytes(), size_t(x.type().bytes())) != 0) {
      const auto p = x.to_doubles(), q = y.to_doubles();
      double most = 0;
      for (size_t i = 0; i < p.size(); ++i) {
        const double d = std::abs(p[i] - q[i]);
        if (!(d <= most)) most = d;  // NaN counts
      }
      if (!(most <= o.tolerance) || o.tolerance == 0) tell(fmt::format("{}: differs by up to {:.3g}", name, most));
    }
  }
  for (const std::string& name : b.names())
    if (!a.contains(name)) ++all, tell(name + ": only in " + o.b);
  std::cout << fmt::format("{} of {} tensors differ\n", different, all);
  if (different > 0) set_exit_code(1);
}

}  // namespace

void add_debug(CLI::App& app) {
  auto* verb = app.add_subcommand("debug", "Look inside a computation");
  verb->require_subcommand(1);
  auto o = std::make_shared<Options>();
  auto* s = verb->add_subcommand("step", "Training steps on given weights and batch, with gradients written out");
  s->add_option("--model", o->model, "model name")->capture_default_str();
  s->add_option("--classes", o->classes)->capture_default_str();
  s->add_option("--weights", o->weights, "safetensors with torchvision's names; default: first values from --seed");
  s->add_option("--inputs", o->inputs, "safetensors with x (N,C,H,W) and y (N, i64)")->required();
  s->add_option("--mode", o->mode)->check(CLI::IsMember({"eager", "graph"}))->capture_default_str();
  add_maths(s, o->maths);
  s->add_option("--dtype", o->dtype)->check(CLI::IsMember({"f32", "f64"}))->capture_default_str();
  s->add_option("--optimizer", o->optimizer)->capture_default_str();
  s->add_option("--steps", o->steps)->check(CLI::Range(1, 1000000))->capture_default_str();
  s->add_option("--out", o->out, "safetensors: loss [steps], logits and grad/* of the first step, param/* after the last");
  s->add_option("--seed", o->seed)->capture_default_str();
  add_threads(s, o->threads);
  s->add_flag("--deterministic", o->deterministic, "same bits for any number of threads");
  s->add_flag("--json", o->json, "losses as JSON on standard output");
  s->footer("Example:\n  cairn debug step --model resnet50 --weights w.safetensors --inputs batch.safetensors \\\n"
            "    --mode graph --dtype f64 --optimizer sgd:lr=0.01,momentum=0.9 --steps 10 --out step.safetensors");
  s->callback([o] { step(*o); });
  auto c = std::make_shared<Compare>();
  auto* both = verb->add_subcommand("compare", "Whether two safetensors files hold the same tensors; exits with 1 when not");
  both->add_option("a", c->a)->required();
  both->add_option("b", c->b)->required();
  both->add_option("--tolerance", c->tolerance, "largest difference that counts as equal; 0: every bit")->capture_default_str();
  both->footer("Example:\n  cairn debug compare runs/a/best.safetensors runs/b/best.safetensors");
  both->callback([c] { compare(*c); });
}

}  // namespace cairn::cli
