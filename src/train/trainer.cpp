// SPDX-License-Identifier: Apache-2.0
// steps → epochs, metrics, checkpoints: the loop around a training step.
// (trail: steps → epochs, metrics, checkpoints)
#include <cairn/train.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"
#include "ops/context.h"
#include "train/checkpoint.h"
#include "train/eager_scope.h"
#include "train/loss_scale.h"
#include "train/metrics.h"
#include "train/run_directory.h"

namespace cairn::train {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// Records whose greatest output is their label.
int64_t count_right(const Tensor& output, const Tensor& y) {
  const int64_t classes = output.shape().back();
  const auto scores = output.to_doubles();
  const auto labels = y.to_doubles();
  int64_t right = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto row = scores.begin() + int64_t(i) * classes;
    right += std::max_element(row, row + classes) - row == int64_t(labels[i]);
  }
  return right;
}

// Puts the averages into the model for a scope.
class AveragesScope {
 public:
  explicit AveragesScope(const nn::Module& net, const Step* step) {
    if (step) variables_ = net.variables(), averages_ = step->averages();
    swap();
  }
  ~AveragesScope() { swap(); }
  AveragesScope(const AveragesScope&) = delete;

 private:
  void swap() {
    for (size_t i = 0; i < averages_.size(); ++i) {
      if (!averages_[i].defined()) continue;
      const Tensor weight = variables_[i].value();
      variables_[i].set_value(averages_[i].value());
      averages_[i].set_value(weight);
    }
  }
  std::vector<Variable> variables_, averages_;
};

}  // namespace

struct Trainer::Impl {
  nn::Module& net;
  loss::Loss loss;
  optim::Config optimizer;
  std::unique_ptr<Step> step;
  Mode mode = Mode::graph;
  CompileOptions compile;
  std::unique_ptr<Compiled> forward;
  ModelInfo info;

  void learn_of(Source& data) {
    info.input_shape = data.input_type().shape;
    info.classifies = loss.classifies;
    if (const auto classes = data.classes(); !classes.empty()) info.classes = classes;
    if (const std::string t = data.transform(); !t.empty())
      info.transform = data::Transform(t).eval().recipe();
  }

  // Loss and output (probabilities, of classifiers) without training.
  std::vector<Tensor> evaluate_batch(const std::vector<Tensor>& in) {
    const TrainingScope evaluation(false);
    const DType dtype = net.parameters().empty() ? DType::f32 : net.parameters()[0].type().dtype;
    const auto as = [&](const Tensor& t) {
      return is_float(t.dtype()) && t.dtype() != dtype ? cast(t, dtype) : t;
    };
    const Tensor output = net(as(in[0]));
    const Tensor value = loss(output, as(in[1]));
    return {cast(value, DType::f64), loss.classifies ? softmax(output) : output};
  }

  Evaluation evaluate(Batches data, int64_t epoch, int64_t epochs,
                      const std::function<void(const Progress&)>& report,
                      const std::atomic<bool>* cancel = nullptr) {
    CAIRN_CHECK(data, "evaluate() needs data");
    learn_of(*data.operator->());
    if (!forward)
      forward = std::make_unique<Compiled>([this](const auto& in) { return evaluate_batch(in); },
                                           compile);
    const AveragesScope averages(net, step.get());
    const EagerScope eager(compile);
    Evaluation out;
    double sum = 0;
    int64_t classes = 0, right = 0;
    const auto start = Clock::now();
    data->seek({});
    while (auto batch = data->next()) {
      if (cancel && cancel->load()) fail(ErrorCode::cancelled, "evaluate: interrupted");
      const int64_t n = batch->x.shape()[0];
      if (n == 0) continue;
      const std::vector<Tensor> in{batch->x, batch->y};
      const auto result = mode == Mode::graph ? (*forward)(in) : evaluate_batch(in);
      sum += result[0].item() * double(n);
      out.count += n;
      if (loss.classifies) {
        classes = result[1].shape().back();
        right += count_right(result[1], batch->y);
        for (double label : batch->y.to_doubles()) out.labels.push_back(int64_t(label));
        for (double score : result[1].to_doubles()) out.scores.push_back(float(score));
      }
      if (report)
        report({.phase = Progress::Phase::evaluate,
                .epoch = epoch,
                .epochs = epochs,
                .batch = batch->index + 1,
                .batches = data->batches(),
                .loss = sum / double(out.count),
                .accuracy = loss.classifies ? double(right) / double(out.count) : -1,
                .pictures_per_second = double(out.count) / seconds_since(start)});
    }
    if (out.count == 0)
      fail(ErrorCode::invalid_argument, "evaluate: there is no record that can be used");
    out.loss = sum / double(out.count);
    if (loss.classifies) {
      std::vector<std::string> names = data->classes();
      for (auto i = int64_t(names.size()); i < classes; ++i) names.push_back(fmt::format("{}", i));
      auto metrics =
          std::make_shared<Metrics>(classification_metrics(names, out.labels, out.scores));
      out.accuracy = metrics->accuracy;
      out.metrics = std::move(metrics);
    }
    return out;
  }
};

// One call of fit().
struct Fit {
  Trainer::Impl& trainer;
  Source& data;
  const FitOptions& options;
  const int64_t steps_per_epoch;
  Step& step;
  RunState state;
  Recipe recipe;
  std::optional<RunDirectory> run;
  int64_t smallest_batch = 1;  // 2 where norms have no statistics in one picture
  int64_t classes = 0;         // outputs of a classifier
  bool cancelled = false;
  std::string validation;  // JSON of the last evaluation
  Clock::time_point started = Clock::now(), epoch_started = started, saved = started;
  int64_t pictures = 0;   // trained on since `started`
  bool compiled = false;  // the first step has run

  Fit(Trainer::Impl& t, Source& d, const FitOptions& o)
      : trainer(t),
        data(d),
        options(o),
        steps_per_epoch((d.batches() + o.accumulate - 1) / o.accumulate),
        step(*t.step) {}

  // --- before the first step ---

  // The output's type for a batch of n, found by recording the model.
  TensorType traced(int64_t n) {
    TensorType type = data.input_type();
    type.shape.insert(0, n);
    const DType dtype = step.optimizer().parameters()[0].type().dtype;
    TensorType out;
    trace(
        [&](const std::vector<Tensor>& in) {
          const TrainingScope training(true);
          const Tensor y =
              trainer.net(is_float(type.dtype) && type.dtype != dtype ? cast(in[0], dtype) : in[0]);
          out = y.type();
          return std::vector<Tensor>{y};
        },
        {type});
    return out;
  }

  void look_at_model() {
    const TensorType out = traced(2);  // mistakes show here, before anything is written
    if (trainer.loss.classifies) {
      if (out.shape.rank() != 2)
        fail(ErrorCode::shape_mismatch,
             fmt::format("train: the model gives {} for a batch of 2, expected [2, classes]",
                         to_string(out)));
      classes = out.shape[1];
      const int64_t named = int64_t(data.classes().size());
      if (named > 0 && named != classes)
        fail(ErrorCode::invalid_argument,
             fmt::format("train: the model tells {} classes apart, the data has {}: {}", classes,
                         named, fmt::join(data.classes(), ", ")),
             "Make the model with as many classes as the data has");
    }
    try {
      traced(1);
    } catch (const Error&) {
      smallest_batch = 2;
    }
    if (smallest_batch == 2 && data.size() % data.batch_size() == 1 &&
        data.batches() * data.batch_size() > data.size())
      log(LogLevel::warning, "train",
          fmt::format("The last batch of each epoch has one picture ({} in batches of {}): batch "
                      "norm cannot train on it, so it is left out. Another batch size uses every "
                      "picture.",
                      data.size(), data.batch_size()));
  }

  Recipe full_recipe() const {
    Recipe r = options.recipe;
    r.set("train.loss", std::string_view(trainer.loss.recipe));
    r.set("train.optimizer", std::string_view(optim::to_string(trainer.optimizer)));
    for (const optim::Group& g : trainer.optimizer.options.groups) {
      const std::string key = "train.groups." + (g.prefix.empty() ? "all" : g.prefix);
      r.set(key + ".lr_scale", g.lr_scale);
      if (g.weight_decay) r.set(key + ".weight_decay", *g.weight_decay);
    }
    r.set("train.schedule", std::string_view(optim::to_string(options.schedule)));
    r.set("train.epochs", options.epochs);
    r.set("train.batch", data.batch_size());
    r.set("train.accumulate", options.accumulate);
    r.set("train.ema", options.ema);
    r.set("train.loss_scale", std::string_view(to_string(options.loss_scale)));
    r.set("train.patience", options.patience);
    r.set("train.seed", int64_t(options.seed));
    r.set("train.mode", options.mode == Mode::graph ? "graph" : "eager");
    r.set("train.deterministic", options.deterministic);
    r.set("train.maths", options.exact ? "exact" : "fast");
    r.set("train.threads", options.threads);
    r.set("train.records", data.size());
    r.set("train.input", std::string_view(to_string(data.input_type())));
    r.set("train.trained", int64_t(step.optimizer().parameters().size()));
    if (const std::string t = data.transform(); !t.empty())
      r.set("train.transform", std::string_view(t));
    r.set_list("train.classes", data.classes());
    return r;
  }

  // What must be as it was for a resumed run to be the same run.
  void compare(const Recipe& before) const {
    static constexpr std::string_view kFree[] = {"train.epochs", "train.mode", "train.threads"};
    std::vector<std::string> differences;
    const auto check = [&](const Recipe& a, const Recipe& b, bool swapped) {
      for (const auto& [key, value] : a.values()) {
        if (!key.starts_with("train.") ||
            std::find(std::begin(kFree), std::end(kFree), key) != std::end(kFree))
          continue;
        if (!b.has(key))
          differences.push_back(fmt::format("{}: {} {}", key, swapped ? "new:" : "gone:", value));
        else if (!swapped && b.text(key) != value)
          differences.push_back(fmt::format("{}: was {}, is {}", key, value, b.text(key)));
      }
    };
    check(before, recipe, false);
    check(recipe, before, true);
    if (!differences.empty())
      fail(ErrorCode::invalid_argument,
           fmt::format("resume: the recipe differs from the run's:\n  {}",
                       fmt::join(differences, "\n  ")),
           "Resume with the recipe that it was started with, or start a new run from its weights "
           "alone");
    if (options.schedule.kind != optim::Schedule::Kind::constant &&
        before.integer("train.epochs") != options.epochs)
      log(LogLevel::warning, "train",
          fmt::format("The run was started for {} epochs and goes on for {}: its schedule bends.",
                      before.integer("train.epochs"), options.epochs));
  }

  void prepare() {
    look_at_model();
    recipe = full_recipe();
    data.shuffle(options.seed);
    std::optional<int64_t> resumed;
    if (!options.out.empty()) {
      run.emplace(options.out, options.resume);
      if (options.resume && run->has_checkpoint()) {
        state = load_checkpoint(run->file("last.safetensors"), trainer.net, step,
                                [&](const Recipe& before) { compare(before); });
        resumed = state.step;
      }
      run->start(recipe, resumed);
      write_data();
    }
    const bool whole =
        state.position.batch >= data.batches();  // the end of the epoch is still to come
    data.seek(whole ? data::Position{state.position.epoch + 1, 0} : state.position);
  }

  // data.json: every record in one counted bucket, of training and of validation.
  void write_data() {
    run->write_data(options.data_report, data.report(),
                    options.validation ? options.validation->report() : std::string());
  }

  // --- the loop ---

  double rate() const {
    return *trainer.optimizer.options.lr *
           options.schedule.factor(state.step, steps_per_epoch, double(options.epochs));
  }

  void report(double lr, double loss) const {
    if (!options.on_progress) return;
    const double speed = double(pictures) / std::max(1e-9, seconds_since(started));
    const double left =
        double((options.epochs - state.position.epoch) * data.batches() - state.position.batch) *
        double(data.batch_size());
    options.on_progress(
        {.epoch = state.position.epoch,
         .epochs = options.epochs,
         .batch = state.position.batch,
         .batches = data.batches(),
         .step = state.step,
         .steps = options.steps > 0 ? options.steps : options.epochs * steps_per_epoch,
         .loss = loss,
         .accuracy = accuracy(),
         .lr = lr,
         .pictures_per_second = speed,
         .eta_seconds = pictures > 0 ? left / speed : 0});
  }

  double mean_loss() const {
    return state.records > 0 ? state.loss_sum / double(state.records)
                             : std::numeric_limits<double>::quiet_NaN();
  }
  double accuracy() const {
    return trainer.loss.classifies && state.records > 0
               ? double(state.right) / double(state.records)
               : -1;
  }

  void check_labels(const data::Batch& batch) const {
    if (!trainer.loss.classifies) return;
    const auto labels = batch.y.to_doubles();
    for (size_t i = 0; i < labels.size(); ++i)
      if (labels[i] < 0 || labels[i] >= double(classes))
        fail(ErrorCode::invalid_argument,
             fmt::format("train: record {} has the label {}, expected 0 to {}", batch.records[i],
                         labels[i], classes - 1));
  }

  bool weights_are_finite() const {
    for (const Variable& p : step.optimizer().parameters())
      if (const Tensor w = p.value(); !std::isfinite(sum(abs(w)).item()) && !all_finite(w).item())
        return false;
    return true;
  }

  // Leaves everything as it was before this batch, and says why.
  [[noreturn]] void stop_nonfinite(const data::Batch& batch, double loss,
                                   const std::string& finding, const StepCounters& before) {
    step.set_counters(before);
    state.position.batch = batch.index;
    std::string hint =
        "Lower the learning rate, warm up or clip gradients; look at the data if an input is the "
        "cause";
    if (!weights_are_finite()) {
      hint +=
          ". The gradient of an earlier step has spoilt the weights: --find-nonfinite (find_nonfinite) shows where";
      if (run && run->has_checkpoint()) hint += "; the last checkpoint is from before that";
    } else if (run) {
      save();
      hint += fmt::format(". The weights before this step are in {}",
                          printable(run->file("last.safetensors")));
    }
    fail(ErrorCode::invalid_argument,
         fmt::format(
             "train: {} at step {} (epoch {}, batch {}): {}",
             std::isfinite(loss) ? "a gradient is not finite" : fmt::format("the loss is {}", loss),
             state.step + 1, batch.epoch + 1, batch.index + 1,
             finding.empty() ? "every value is finite when the operators run one by one" : finding),
         hint);
  }

  void train_on(const data::Batch& batch) {
    const int64_t n = batch.x.shape()[0];
    state.position = {batch.epoch, batch.index + 1};
    if (n < smallest_batch) {
      ++state.skipped_batches;
      return;
    }
    check_labels(batch);
    const bool last = batch.index + 1 == data.batches();
    const bool updates = options.accumulate == 1 || last || state.waiting + 1 >= options.accumulate;
    const double lr = rate();
    const StepCounters before = step.counters();
    if (options.find_nonfinite)
      if (const std::string finding = step.find_nonfinite(batch.x, batch.y, before.iterations);
          !finding.empty())
        stop_nonfinite(batch, std::numeric_limits<double>::quiet_NaN(), finding, before);
    const StepResult result =
        updates ? step.update(batch.x, batch.y, lr) : step.accumulate(batch.x, batch.y);
    if (!result.applied) {
      const LossScale& scale = options.loss_scale;
      if (scale.kind == LossScale::Kind::none || step.counters().skipped_in_a_row > scale.max_skips)
        stop_nonfinite(batch, result.loss, step.find_nonfinite(batch.x, batch.y), before);
      log(LogLevel::info, "train",
          fmt::format("step {}: a value overflowed at loss scale {}; the step is left out",
                      state.step + 1, result.loss_scale));
    } else {
      state.loss_sum += result.loss * double(n);
      state.records += n;
      if (trainer.loss.classifies) state.right += count_right(result.output, batch.y);
    }
    if (compiled)
      pictures += n;
    else
      compiled = true, started = Clock::now();  // the time of the first step is that of compiling
    if (updates) {
      state.waiting = 0;
      ++state.step;
      if (run && state.step % options.log_every == 0) log_step(result, lr);
    } else {
      ++state.waiting;
    }
    report(lr, mean_loss());
  }

  void log_step(const StepResult& result, double lr) {
    Json line{
        {"step", state.step}, {"epoch", state.position.epoch}, {"loss", result.loss}, {"lr", lr}};
    if (!std::isnan(result.gradient_norm)) line["gradient_norm"] = result.gradient_norm;
    if (options.loss_scale.kind != LossScale::Kind::none) line["loss_scale"] = result.loss_scale;
    if (pictures > 0)
      line["pictures_per_second"] = double(pictures) / std::max(1e-9, seconds_since(started));
    run->log(line);
    run->scalar("loss/train", result.loss, state.step);
    run->scalar("lr", lr, state.step);
    if (!std::isnan(result.gradient_norm))
      run->scalar("gradient_norm", result.gradient_norm, state.step);
  }

  void end_epoch() {
    EpochResult e{.epoch = state.position.epoch,
                  .step = state.step,
                  .train_loss = mean_loss(),
                  .train_accuracy = accuracy(),
                  .loss = std::numeric_limits<double>::quiet_NaN(),
                  .lr = rate()};
    if (options.validation) {
      const auto began = Clock::now();
      const Evaluation v = trainer.evaluate(options.validation, e.epoch, options.epochs,
                                            options.on_progress, options.cancel);
      started += Clock::now() - began;
      e.loss = v.loss;
      if (v.metrics) e.accuracy = v.accuracy;
      validation = v.json();
    }
    e.seconds = seconds_since(epoch_started);
    // Higher is better: accuracy, or the loss negated; of validation where there is one.
    double score = -e.train_loss;
    if (e.accuracy >= 0)
      score = e.accuracy;
    else if (!std::isnan(e.loss))
      score = -e.loss;
    const bool best = !options.choose_best || state.best_epoch < 0 || score > state.best;
    if (best) state.best = score, state.best_epoch = int64_t(state.history.size());
    state.history.push_back(e);
    state.position = {state.position.epoch + 1, 0};
    state.loss_sum = 0, state.records = 0, state.right = 0;
    if (!run) return;
    write_data();
    if (best) {
      const AveragesScope averages(trainer.net, &step);
      save_best(run->file("best.safetensors"), trainer.net, e);
    }
    save();
    Json line{
        {"step", e.step}, {"epoch", e.epoch}, {"train_loss", e.train_loss}, {"seconds", e.seconds}};
    if (e.train_accuracy >= 0) line["train_accuracy"] = e.train_accuracy;
    if (!std::isnan(e.loss))
      line["validation_loss"] = e.loss, run->scalar("loss/validation", e.loss, e.step);
    if (e.accuracy >= 0)
      line["validation_accuracy"] = e.accuracy,
      run->scalar("accuracy/validation", e.accuracy, e.step);
    if (e.train_accuracy >= 0) run->scalar("accuracy/train", e.train_accuracy, e.step);
    run->log(line);
    run->flush();
    run->write_history(state.history, state.best_epoch, options.choose_best, validation);
  }

  void save() {
    if (!run) return;
    if (!weights_are_finite())
      fail(ErrorCode::invalid_argument,
           fmt::format("train: weights are not finite after step {}", state.step),
           "A gradient overflowed: lower the learning rate, warm up or clip gradients; "
           "--find-nonfinite (find_nonfinite) shows where");
    state.counters = step.counters();
    save_checkpoint(run->file("last.safetensors"), trainer.net, step, state, recipe);
    saved = Clock::now();
  }

  void loop() {
    const auto due = [&] {
      if (options.save_every > 0) return state.waiting == 0 && state.step % options.save_every == 0;
      return seconds_since(saved) >= options.save_minutes * 60;
    };
    const auto done = [&] {
      if (options.cancel && options.cancel->load()) cancelled = true;
      const int64_t worse = int64_t(state.history.size()) - 1 - state.best_epoch;
      return cancelled || (options.patience > 0 && worse >= options.patience) ||
             (options.steps > 0 && state.step >= options.steps && state.waiting == 0);
    };
    bool is_saved = false;
    try {
      while (state.position.epoch < options.epochs && !done()) {
        epoch_started = Clock::now();
        is_saved = false;
        bool whole = state.position.batch >= data.batches();  // resumed at its end
        while (!whole) {
          const auto batch = data.next();
          if (batch)
            train_on(*batch);
          else
            whole = true;
          if (state.position.batch >= data.batches())
            continue;  // no stop or save between here and the end
          if (!whole && done()) return save();
          if (!whole && run && due()) save();
        }
        state.position.batch = data.batches();
        end_epoch();
        is_saved = true;
      }
    } catch (const Error& e) {  // in evaluation: it runs again on resume
      if (e.code() != ErrorCode::cancelled) throw;
      cancelled = true;
    }
    if (!is_saved) save();
  }

  FitResult result() const {
    return {cancelled,
            state.step,
            state.history,
            state.best_epoch,
            options.choose_best,
            step.counters().skipped,
            state.skipped_batches};
  }
};

std::string FitResult::report() const {
  std::string out = fmt::format("{} steps", steps);
  if (best_epoch >= 0) {
    const EpochResult& e = epochs[size_t(best_epoch)];
    out += fmt::format(", {} epoch {}", chosen ? "best after" : "result of the last", e.epoch + 1);
    if (e.accuracy >= 0) out += fmt::format(" (accuracy {:.4f})", e.accuracy);
  }
  if (skipped_steps > 0) out += fmt::format(", {} steps left out by the loss scale", skipped_steps);
  if (skipped_batches > 0)
    out += fmt::format(", {} batches too small to train on", skipped_batches);
  return out;
}

Trainer::Trainer(nn::Module& net, loss::Loss loss, const optim::Config& optimizer)
    : impl_(std::make_unique<Impl>(
          Impl{net, std::move(loss), optimizer, nullptr, Mode::graph, {}, nullptr, {}})) {}
Trainer::~Trainer() = default;

FitResult Trainer::fit(Batches data, const FitOptions& o) {
  if (!data) fail(ErrorCode::invalid_argument, "train: there is no data");
  const auto expect = [](bool good, std::string_view what, auto got, std::string_view expected) {
    if (!good)
      fail(ErrorCode::invalid_argument,
           fmt::format("train: {}: got {}, expected {}", what, got, expected));
  };
  expect(o.epochs >= 1, "epochs", o.epochs, "1 or more");
  expect(o.steps >= 0, "steps", o.steps, "0 or more");
  expect(o.accumulate >= 1, "accumulate", o.accumulate, "1 or more");
  expect(o.log_every >= 1, "log_every", o.log_every, "1 or more");
  expect(o.threads >= 0, "threads", o.threads, "0 or more");
  if (o.patience != 0 && !o.choose_best)
    fail(ErrorCode::invalid_argument,
         fmt::format("train: patience {} without a part to choose the best epoch by", o.patience),
         "Keep a part of the training pictures back: --val 0.1 (choose_best with a validation set)");
  expect(o.patience >= 0, "patience", o.patience, "0 or more");
  expect(!o.resume || !o.out.empty(), "resume", "no run directory", "one");
  Impl& t = *impl_;
  t.mode = o.mode;
  t.compile = {.threads = o.threads, .deterministic = o.deterministic, .exact = o.exact};
  t.forward.reset();
  t.learn_of(*data.operator->());
  t.step = std::make_unique<Step>(t.net, t.loss, t.optimizer,
                                  StepOptions{.mode = o.mode,
                                              .compile = t.compile,
                                              .seed = o.seed,
                                              .accumulates = o.accumulate > 1,
                                              .ema = o.ema,
                                              .loss_scale = o.loss_scale});
  Fit fit(t, *data.operator->(), o);
  fit.prepare();
  fit.loop();
  return fit.result();
}

Evaluation Trainer::evaluate(Batches data,
                             const std::function<void(const Progress&)>& on_progress) {
  return impl_->evaluate(std::move(data), 0, 1, on_progress);
}

nn::Module& Trainer::net() const { return impl_->net; }
ModelInfo Trainer::info() const { return impl_->info; }
PlanStats Trainer::stats() const { return impl_->step ? impl_->step->stats() : PlanStats{}; }

void Trainer::with_averages(const std::function<void()>& body) {
  const AveragesScope averages(impl_->net, impl_->step.get());
  body();
}

void Trainer::use_averages() {
  if (!impl_->step) return;
  const auto variables = impl_->net.variables(), averages = impl_->step->averages();
  for (size_t i = 0; i < averages.size(); ++i)
    if (averages[i].defined()) variables[i].set_value(averages[i].value());
  impl_->step.reset();
}

}  // namespace cairn::train
