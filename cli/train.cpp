// SPDX-License-Identifier: Apache-2.0
// cairn train: pictures in folders → a trained, evaluated, exported model in a run directory.
#include <cairn/safetensors.h>
#include <cairn/train.h>
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/session.h"
#include "cli/verbs.h"

namespace cairn::cli {
namespace {

struct Options {
  std::string data, model = "resnet18", out, resume, weights, transform, mode = "graph", maths = "fast";
  std::string optimizer = "sgd:momentum=0.9,nesterov=true,weight_decay=0.0005", schedule = "cosine:warmup=1";
  std::string loss_scale = "none", color = "auto", class_weights = "none";
  std::vector<std::string> freeze;
  double lr = 0, width = 1, split = 0.75, val = 0, smoothing = 0, ema = 0;
  int64_t epochs = 20, imgsz = 224, batch = 32, steps = 0, seed = 0, split_seed = 1, accumulate = 1, patience = 0;
  int threads = 0, workers = -1;
  bool epochs_given = false, deterministic = false, json = false, small_input = false, fail_on_bad = false, find_nonfinite = false, no_check = false;
};

// Flips and turns suit pictures without an up; colour jitter stays mild.
std::string default_transform(const std::string& color, int64_t size) {
  return fmt::format("{},resize={},hflip,vflip,affine=5:0.03:0.95-1.05,jitter=0.15:0.15:{},normalize=0.5:0.25", color,
                     size, color == "grey" ? "0" : "0.1");
}

struct Data {
  data::Dataset all;
  std::string report;
  bool grey = false;
};

Data open_data(const std::string& path) {
  Data d{data::open(path)};
  if (d.all.classes().size() < 2)
    fail(ErrorCode::invalid_argument, fmt::format("train: {} has {} class, expected at least 2", printable(path), d.all.classes().size()),
         "Put the pictures of each class into a folder of its own");
  return d;
}

// Decodes every picture once and leaves out those that cannot be used.
void check_data(Data& d, const std::string& path, bool fail_on_bad) {
  std::cerr << fmt::format("checking {} pictures in {}\n", d.all.size(), printable(path));
  auto checked = d.all.check({.progress = Counter("checked", d.all.size())});
  d.report = checked.report.json();
  std::cerr << checked.report.summary() << "\n";
  d.all = std::move(checked.usable);
  if (const int64_t bad = checked.report.count(data::Bucket::failed); fail_on_bad && bad > 0)
    fail(ErrorCode::invalid_argument, fmt::format("train: {} pictures cannot be used (listed above)", bad),
         "Mend or remove them, or leave --fail-on-bad-picture out");
  const auto counts = d.all.class_counts();
  for (size_t i = 0; i < counts.size(); ++i)
    if (counts[i] == 0)
      fail(ErrorCode::invalid_argument, fmt::format("train: class {} has no usable picture", printable(d.all.classes()[i])),
           "Mend its pictures, or remove the class");
  d.grey = checked.grey;
}

train::Recipe new_recipe(const Options& o) {
  train::Recipe r;
  r.set("data.path", std::filesystem::absolute(o.data).string());
  r.set("data.split", o.split);
  r.set("data.split_seed", o.split_seed);
  r.set("data.val", o.val);
  r.set("data.unchecked", o.no_check);
  return r;
}

void describe_model(train::Recipe& r, const Options& o, const data::Dataset& all, const std::string& color) {
  const data::Transform transform(o.transform.empty() ? default_transform(color, o.imgsz) : o.transform);
  const auto size = transform.output_size();
  r.set_list("data.classes", all.classes());
  r.set("data.transform", transform.recipe());
  r.set("model.name", o.model);
  r.set("model.classes", int64_t(all.classes().size()));
  r.set("model.channels", int64_t(transform.channels()));
  r.set("model.width", o.width);
  r.set("model.small_input", o.small_input);
  r.set("model.input_size", size ? int64_t(size->height) : o.imgsz);
  r.set("model.seed", o.seed);
  r.set("model.weights", o.weights);
  r.set_list("model.freeze", o.freeze);
}

void write_metrics(const std::filesystem::path& run, const train::Evaluation& result) {
  write_file(run / "metrics.json", result.json() + "\n");
}

// A resumed run's own recipe stands for the options; these alone may be given anew.
constexpr std::string_view kOnResume[] = {"--resume", "--data", "--epochs", "--steps", "--threads", "--workers",
                                          "--fail-on-bad-picture", "--json"};

std::string one_of(const train::Recipe& r, std::string_view key, std::string_view a, std::string_view b) {
  const std::string& got = r.text(key);
  if (got != a && got != b)
    fail(ErrorCode::parse, fmt::format("recipe: {}: got \"{}\", expected {} or {}", key, got, a, b));
  return got;
}

train::Recipe resumed_recipe(Options& o) {
  o.out = o.resume;
  train::Recipe r = train::run_recipe(o.out);
  if (!o.data.empty()) r.set("data.path", std::filesystem::absolute(o.data).string());  // it may have moved
  o.optimizer = r.text("train.optimizer");
  o.schedule = r.text("train.schedule");
  o.loss_scale = r.text("train.loss_scale");
  const int64_t before = r.integer("train.epochs");
  if (!o.epochs_given) o.epochs = before;
  if (o.epochs < before)
    fail(ErrorCode::invalid_argument, fmt::format("train: --epochs {} on resume, expected {} or more, as the run has", o.epochs, before),
         "--steps stops earlier");
  o.batch = r.integer("train.batch");
  o.accumulate = r.integer("train.accumulate");
  o.ema = r.number("train.ema");
  o.patience = r.integer("train.patience");
  o.seed = r.integer("train.seed");
  o.mode = one_of(r, "train.mode", "graph", "eager");
  o.deterministic = r.flag("train.deterministic");
  o.maths = one_of(r, "train.maths", "fast", "exact");
  o.weights = r.text("model.weights");
  o.freeze = r.list("model.freeze");
  o.no_check = r.flag("data.unchecked");
  return r;
}

void run(Options o) {
  const int threads = apply_threads(o.threads);
  const bool resume = !o.resume.empty();
  if (!resume && o.data.empty())
    fail(ErrorCode::invalid_argument, "train: no data", "Give --data FOLDER, or --resume RUN");
  if (!resume && o.out.empty())
    fail(ErrorCode::invalid_argument, "train: nowhere to write", "Give --out, e.g. --out runs/cells");

  // What is wrong in the command shows here, before any picture is decoded.
  train::Recipe recipe = resume ? resumed_recipe(o) : new_recipe(o);
  if (!resume) {
    train::refuse_old_run(o.out);
    // Plots among the pictures would be a class next time.
    const auto data = std::filesystem::weakly_canonical(o.data), out = std::filesystem::weakly_canonical(o.out);
    if (std::filesystem::is_directory(data) && std::mismatch(data.begin(), data.end(), out.begin(), out.end()).first == data.end())
      fail(ErrorCode::invalid_argument, fmt::format("train: --out {} lies inside the data folder", printable(o.out)),
           "Name a folder elsewhere, e.g. --out runs/cells");
  }
  optim::Config optimizer = optim::parse(o.optimizer);
  const optim::Schedule schedule = optim::parse_schedule(o.schedule);
  const train::LossScale loss_scale = train::parse_loss_scale(o.loss_scale);
  Data d = open_data(recipe.text("data.path"));
  if (!resume) {
    describe_model(recipe, o, d.all, o.color == "auto" ? "rgb" : o.color);
    const auto trial = make_model(recipe, {.draw = false});
    for (const std::string& prefix : o.freeze) trial->freeze(prefix);
    if (!o.weights.empty()) SafetensorsFile{o.weights};
  }

  if (!o.no_check) check_data(d, recipe.text("data.path"), o.fail_on_bad);
  if (!resume && o.color == "auto" && d.grey) describe_model(recipe, o, d.all, "grey");
  if (o.no_check && o.color == "auto" && !resume && o.transform.empty())
    std::cerr << "note: read as rgb, since --no-check does not look for colour; --color grey halves the first layer's work\n";
  const std::string found = fingerprint(d.all);
  if (!resume) recipe.set("data.fingerprint", std::string_view(found));
  if (recipe.text("data.fingerprint") != found)
    fail(ErrorCode::invalid_argument,
         fmt::format("train: the pictures in {} are not those that the run began with: other names, labels or sizes",
                     printable(recipe.text("data.path"))),
         fmt::format("Resume with the data as it was, or begin anew from the weights: --weights {}/best.safetensors",
                     printable(o.out)));
  const Parts parts = open_parts(d.all, recipe);
  std::cerr << fmt::format("{} pictures to train on, {}{} to test on, {} classes\n", parts.train.size(),
                           parts.val.size() > 0 ? fmt::format("{} to choose the best epoch by, ", parts.val.size()) : "",
                           parts.test.size(), d.all.classes().size());

  auto net = make_model(recipe);
  if (!o.weights.empty() && !resume)
    std::cerr << nn::load_weights(*net, o.weights, {.reset = {models::head(recipe.text("model.name"))}}).summary() << "\n";
  for (const std::string& prefix : o.freeze) net->freeze(prefix);

  loss::CrossEntropyOptions loss_options{.smoothing = o.smoothing};
  if (o.class_weights == "balanced") {
    const auto counts = parts.train.class_counts();
    for (int64_t c : counts)
      loss_options.class_weights.push_back(double(parts.train.size()) / (double(counts.size()) * double(std::max<int64_t>(c, 1))));
  }
  const loss::Loss loss = resume ? loss::parse(recipe.text("train.loss")) : loss::cross_entropy(loss_options);
  if (!resume && o.lr > 0) optimizer.options.lr = o.lr;
  if (!resume && o.lr <= 0 && o.optimizer.find("lr=") == std::string::npos)
    optimizer.options.lr = optimizer.method == "sgd" ? 0.05 * double(o.batch * o.accumulate) / 32 : *optimizer.options.lr;
  optimizer.options.decay_all = false;

  const data::Transform transform(recipe.text("data.transform"));
  data::BatchOptions loading{.shuffle = true, .seed = uint64_t(o.seed), .workers = o.workers, .fail_on_bad_picture = o.fail_on_bad};
  data::Loader train_loader = parts.train.map(transform).batch(o.batch, loading);
  loading.shuffle = false;
  const auto unchanged = [&](const data::Dataset& set) {
    return set.map(transform.eval()).batch(std::max<int64_t>(o.batch, 64), loading);
  };
  data::Loader test_loader = unchanged(parts.test);

  train::Trainer trainer(*net, loss, optimizer);
  train::FitOptions fit;
  fit.epochs = o.epochs;
  fit.steps = o.steps;
  fit.mode = o.mode == "eager" ? Mode::eager : Mode::graph;
  fit.seed = uint64_t(o.seed);
  fit.schedule = schedule;
  fit.accumulate = o.accumulate;
  fit.ema = o.ema;
  fit.loss_scale = loss_scale;
  fit.deterministic = o.deterministic;
  fit.exact = o.maths == "exact";
  fit.threads = o.deterministic ? 0 : threads;
  // Without a part to choose the best epoch by, the last weights are the result: a choice made on the
  // test pictures would flatter it.
  fit.choose_best = parts.val.size() > 0;
  fit.validation = fit.choose_best ? train::Batches(unchanged(parts.val)) : train::Batches(test_loader);
  fit.patience = o.patience;
  fit.find_nonfinite = o.find_nonfinite;
  fit.out = o.out;
  fit.resume = resume;
  fit.recipe = recipe;
  fit.data_report = d.report;
  fit.cancel = &interrupted();
  ProgressBar bar;
  fit.on_progress = [&](const train::Progress& p) { bar(p); };

  const train::FitResult result = trainer.fit(train_loader, fit);
  if (result.cancelled) {
    std::cerr << fmt::format("\nstopped and saved; go on with: cairn train --resume {}\n", printable(o.out));
    return set_exit_code(130);
  }
  std::cerr << result.report() << "\n";
  // Without the check before training, bad pictures show only now.
  for (const data::Loader* loader : {&train_loader, &test_loader})
    if (const auto report = loader->report(); report.found() > 0) std::cerr << report.summary() << "\n";

  // What is measured and exported are the chosen weights.
  const std::filesystem::path out(o.out);
  auto best = load_run(train::open_run(out));
  train::Trainer judge(*best, loss, optimizer);
  const train::Evaluation evaluation = judge.evaluate(test_loader, [&](const train::Progress& p) { bar(p); });
  write_metrics(out, evaluation);
  evaluation.write_plots(out / "plots");
  judge.write_onnx(out / "model.onnx");
  if (o.json) std::cout << evaluation.json() << "\n";
  else std::cout << evaluation.table();
  std::cerr << fmt::format("run: {0}   model: {0}/model.onnx   plots: {0}/plots\n", printable(o.out));
}

}  // namespace

void add_train(CLI::App& app) {
  auto o = std::make_shared<Options>();
  auto* verb = app.add_subcommand("train", "Train a classifier on pictures in folders");
  const auto positive = CLI::Range(int64_t(1), int64_t(1) << 40);
  verb->add_option("--data", o->data, "a folder with one sub-folder a class (or train/ and test/ of those), or a CSV list");
  verb->add_option("--out", o->out, "run directory to make");
  verb->add_option("--resume", o->resume, "go on with a run, bit for bit as if it had not stopped; --data says where its pictures went, --epochs may grow");
  verb->add_option("--model", o->model)->capture_default_str()->check(CLI::IsMember(models::names()));
  verb->add_option("--width", o->width, "multiplies the model's channels")->capture_default_str()->check(number(0.01, 8.0));
  verb->add_flag("--small-input", o->small_input, "ResNets: a stem for pictures below 64 pixels");
  verb->add_option("--weights", o->weights, "start from safetensors with torchvision's names; another head is made anew");
  verb->add_option("--freeze", o->freeze, "modules that are not trained, e.g. layer1 (may repeat)");
  verb->add_option("--epochs", o->epochs)->capture_default_str()->check(positive);
  verb->add_option("--steps", o->steps, "stop after so many optimiser steps");
  verb->add_option("--imgsz", o->imgsz, "picture size")->capture_default_str()->check(CLI::Range(8, 4096));
  verb->add_option("--batch", o->batch)->capture_default_str()->check(CLI::Range(1, 65536));
  verb->add_option("--transform", o->transform, "recipe from picture to tensor, with augmentation; see docs/guide/train-your-own.md");
  verb->add_option("--color", o->color, "grey, rgb, or auto: grey when no picture has colour")->capture_default_str()->check(CLI::IsMember({"auto", "grey", "rgb"}));
  verb->add_option("--split", o->split, "share to train on, when the data did not come split")->capture_default_str()->check(number(0.01, 0.99));
  verb->add_option("--val", o->val, "share of the training pictures kept back to choose the best epoch by; 0: the last epoch is the result, unless the data has a part val/")->capture_default_str()->check(number(0.0, 0.9));
  verb->add_option("--split-seed", o->split_seed)->capture_default_str();
  verb->add_option("--optimizer", o->optimizer, "sgd, adam, adamw or rmsprop, with options")->capture_default_str();
  verb->add_option("--lr", o->lr, "learning rate; default: 0.05 for a batch of 32 with sgd, in proportion to the batch")->check(number(1e-12, 1e6));
  verb->add_option("--schedule", o->schedule, "constant, step, cosine, one_cycle or polynomial, with options")->capture_default_str();
  verb->add_option("--smoothing", o->smoothing, "label smoothing")->capture_default_str()->check(number(0.0, 0.99));
  verb->add_option("--class-weights", o->class_weights, "none, or balanced: rare classes count more")->capture_default_str()->check(CLI::IsMember({"none", "balanced"}));
  verb->add_option("--ema", o->ema, "average the weights with this decay, e.g. 0.999")->capture_default_str()->check(number(0.0, 0.999999));
  verb->add_option("--accumulate", o->accumulate, "batches an update")->capture_default_str()->check(positive);
  verb->add_option("--patience", o->patience, "stop after so many epochs without a better result; 0: never")->capture_default_str();
  verb->add_option("--loss-scale", o->loss_scale, "none, fixed or dynamic")->capture_default_str();
  verb->add_option("--seed", o->seed, "of first values, order, augmentation, dropout")->capture_default_str();
  add_threads(verb, o->threads);
  add_workers(verb, o->workers);
  verb->add_flag("--deterministic", o->deterministic, "same bits for any number of threads");
  add_maths(verb, o->maths);
  verb->add_option("--mode", o->mode, "graph: compiled; eager: for debugging")->capture_default_str()->check(CLI::IsMember({"eager", "graph"}));
  verb->add_flag("--fail-on-bad-picture", o->fail_on_bad, "stop at a picture that cannot be used instead of counting it");
  verb->add_flag("--find-nonfinite", o->find_nonfinite, "look at every value of every step (slow)");
  verb->add_flag("--no-check", o->no_check, "do not decode every picture before training");
  verb->add_flag("--json", o->json, "final metrics as JSON on standard output");
  verb->footer(
      "Examples:\n"
      "  cairn train --data pictures/ --model resnet18 --epochs 20 --imgsz 128 --batch 32 --out runs/cells\n"
      "  cairn train --data list.csv --weights resnet18.safetensors --freeze layer1 --lr 0.01 --out runs/tuned\n"
      "  cairn train --resume runs/cells");
  verb->callback([o, verb] {
    o->epochs_given = verb->count("--epochs") > 0;
    for (const CLI::Option* option : verb->get_options())
      if (!o->resume.empty() && option->count() > 0 && std::ranges::count(kOnResume, option->get_name()) == 0)
        fail(ErrorCode::invalid_argument, fmt::format("train: {} cannot be changed on resume", option->get_name()),
             fmt::format("Leave it out; {}/recipe.yaml has what the run was started with", printable(o->resume)));
    run(*o);
  });
}

}  // namespace cairn::cli
