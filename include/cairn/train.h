// SPDX-License-Identifier: Apache-2.0
// Training: one function for a whole step, and the loop around it with evaluation, checkpoints and
// exact resume.
//
//   train::Trainer trainer{net, loss::cross_entropy(), optim::momentum({.lr = 0.05})};
//   trainer.fit(train_set.map(data::augment(224)).batch(32), {.epochs = 20, .out = "runs/first"});
//   std::cout << trainer.evaluate(test_set.map(data::resize(224)).batch(64)).table();
#pragma once
#include <cairn/data.h>
#include <cairn/graph.h>
#include <cairn/loss.h>
#include <cairn/nn.h>
#include <cairn/optim.h>

#include <atomic>
#include <limits>

namespace cairn::train {

// --- one step ---

// Multiplies the loss so that small gradients survive 16 bits, and divides them again before use. A
// step whose gradients overflow changes nothing; `dynamic` then lowers the scale, and raises it
// after `interval` good steps.
struct LossScale {
  enum class Kind { none, fixed, dynamic } kind = Kind::none;
  double scale = 65536;  // at the start
  double growth = 2, backoff = 0.5;
  int64_t interval = 2000;
  double floor = 1;        // never below
  int64_t max_skips = 50;  // in a row: more stop training
};
CAIRN_API LossScale
parse_loss_scale(std::string_view text);  // "none", "fixed:scale=128", "dynamic:interval=1000"
CAIRN_API std::string to_string(const LossScale& scale);

struct StepOptions {
  Mode mode = Mode::graph;
  CompileOptions compile = {};
  uint64_t seed = 0;         // of dropout and the like
  bool accumulates = false;  // allows accumulate()
  double ema = 0;  // > 0: keeps averaged weights, a ← d a + (1 − d) w, d = min(ema, (1+t)/(10+t))
  LossScale loss_scale = {};
  bool keep_gradients = false;  // give them in the result
};

struct StepResult {
  double loss = 0;
  // False when loss (or, with a loss scale, a gradient) was not finite: then nothing has changed.
  bool applied = true;
  Tensor output;                  // of the model
  std::vector<Tensor> gradients;  // with keep_gradients, as Step::optimizer().parameters()
  double gradient_norm = std::numeric_limits<double>::quiet_NaN();  // with clip_norm
  double loss_scale = 1;
};

// How often what has run: all of a step's state that is not in Variables.
struct StepCounters {
  int64_t iterations = 0;  // forward passes: keys random numbers
  int64_t updates = 0;     // changes of the weights: Adam's t
  double weight = 0;       // pictures in the gradients that are accumulated now
  int64_t skipped = 0, skipped_in_a_row = 0;
};

// Forward, loss, backward, clipping, optimiser, averages and norm statistics as one function, run
// eagerly or compiled into one graph. The parameters that are trainable now are trained.
class CAIRN_API Step {
 public:
  // `net` must outlive it.
  Step(nn::Module& net, loss::Loss loss, const optim::Config& optimizer,
       const StepOptions& options = {});
  ~Step();
  Step(const Step&) = delete;

  // One update from this batch, and from those accumulated since the last one: gradients are the
  // mean over all of their pictures.
  StepResult update(const Tensor& x, const Tensor& y, double lr);
  // Adds this batch's gradients to those of the next update.
  StepResult accumulate(const Tensor& x, const Tensor& y);

  const StepOptions& options() const;
  const optim::Optimizer& optimizer() const;
  // "optimizer/…", "ema/…", "accumulated/…", "loss_scale/…".
  std::vector<Variable> state() const;
  // The averages in the order of net.variables(); undefined where a variable has none (integers).
  std::vector<Variable> averages() const;
  const StepCounters& counters() const;
  void set_counters(const StepCounters& counters);
  PlanStats stats() const;      // of the plan that ran last; zeros in eager mode
  std::string explain() const;  // its steps, one a line

  // Runs a batch eagerly and without effect, with the random numbers of an iteration (−1: the last
  // one), and tells the first value that is not finite: operator, module, line, and which row.
  // Empty: none.
  std::string find_nonfinite(const Tensor& x, const Tensor& y, int64_t iteration = -1) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// --- batches ---

// Where batches come from: an epoch's worth of next(), then nothing, then the next epoch.
class CAIRN_API Source {
 public:
  virtual ~Source() = default;
  virtual std::optional<data::Batch> next() = 0;
  virtual void seek(data::Position position) = 0;  // position.batch < batches()
  virtual void shuffle(uint64_t seed) = 0;         // from the beginning of epoch 0
  virtual int64_t size() const = 0;                // records in an epoch
  virtual int64_t batch_size() const = 0;
  virtual int64_t batches() const = 0;
  virtual TensorType input_type() const = 0;  // of one record's x
  virtual std::vector<std::string> classes() const { return {}; }
  virtual std::string transform() const { return {}; }  // the recipe that made the inputs
  virtual std::string report() const { return {}; }     // JSON: what could not be used
};

// A source behind a cheap handle. An lvalue Loader must outlive it; an rvalue is taken over.
class CAIRN_API Batches {
 public:
  Batches() = default;
  Batches(data::Loader& loader);
  Batches(data::Loader&& loader);
  Batches(std::shared_ptr<Source> source) : source_(std::move(source)) {}
  // Rows of tensors in memory: x [n, …], y [n, …].
  static Batches of(const Tensor& x, const Tensor& y, int64_t batch_size,
                    std::vector<std::string> classes = {});
  explicit operator bool() const { return bool(source_); }
  Source* operator->() const { return source_.get(); }

 private:
  std::shared_ptr<Source> source_;
};

// --- evaluation ---

struct Metrics;  // train/metrics.h

struct CAIRN_API Evaluation {
  int64_t count = 0;
  double loss = 0;                         // mean over the records
  double accuracy = 0;                     // of classifiers
  std::shared_ptr<const Metrics> metrics;  // null when the loss does not classify
  std::vector<int64_t> labels;             // and scores: a row of probabilities a record
  std::vector<float> scores;
  std::string table() const;  // for people
  std::string json() const;
  void write_plots(const std::filesystem::path& folder) const;  // confusion.png, roc.png
};

// --- a run ---

// The full recipe of a run as resolved: dotted keys ("model.name") and values, in order. Its file
// is YAML, nested by the dots.
class CAIRN_API Recipe {
 public:
  void set(std::string_view key, std::string_view value);
  void set(std::string_view key, double value);
  void set(std::string_view key, int64_t value);
  void set(std::string_view key, bool value) {
    set(key, std::string_view(value ? "true" : "false"));
  }
  void set(std::string_view key, const char* value) { set(key, std::string_view(value)); }
  void set(std::string_view key, int value) { set(key, int64_t(value)); }
  void set_list(std::string_view key,
                const std::vector<std::string>& values);  // "key.0", "key.1", …
  bool has(std::string_view key) const;
  const std::string& text(std::string_view key) const;  // throws not_found; the others parse, too
  double number(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  bool flag(std::string_view key) const;
  std::vector<std::string> list(std::string_view key) const;  // empty when there is none
  const std::vector<std::pair<std::string, std::string>>& values() const { return values_; }

  std::string yaml() const;
  static Recipe parse(std::string_view yaml);  // throws parse
  static Recipe read(const std::filesystem::path& file);

 private:
  const std::string* find(std::string_view key) const;
  std::vector<std::pair<std::string, std::string>> values_;
};

struct Progress {
  enum class Phase { train, evaluate } phase = Phase::train;
  int64_t epoch = 0, epochs = 0;   // the first is 0
  int64_t batch = 0, batches = 0;  // done in this epoch
  int64_t step = 0, steps = 0;     // updates done, and in all
  double loss = 0;                 // mean of this epoch so far
  double accuracy = -1;            // likewise, of classifiers; −1: none
  double lr = 0;
  double pictures_per_second = 0, eta_seconds = 0;
};

struct FitOptions {
  int64_t epochs = 10;
  int64_t steps = 0;  // > 0: stop after so many updates, counted over the whole run; the schedule
                      // goes by `epochs`
  Mode mode = Mode::graph;
  uint64_t seed = 0;  // of data order, augmentation, dropout
  optim::Schedule schedule = {};
  int64_t accumulate = 1;  // batches an update
  double ema = 0;          // see StepOptions; evaluation then uses the averages
  LossScale loss_scale = {};
  bool deterministic = false;   // same bits for any number of threads
  bool exact = false;           // see CompileOptions
  int threads = 0;              // 0: as set
  Batches validation = {};      // evaluated after each epoch
  // The result (best.safetensors) is the epoch that did best on `validation`, or on the training data
  // without it. false: the last epoch, for test data, which a choice would make flatter.
  bool choose_best = true;
  int64_t patience = 0;         // > 0: stop after so many epochs without a better result
  bool find_nonfinite = false;  // look at every value of every step (slow)

  // A run directory: recipe.yaml, data.json, log.jsonl, metrics.json, last.safetensors,
  // best.safetensors, plots/ and an event file. Empty: nothing is written. An old run there is
  // refused, unless it is resumed: that goes on as if it had not stopped, bit for bit, and refuses
  // a recipe that differs.
  std::filesystem::path out = {};
  bool resume = false;
  Recipe recipe = {};            // what the caller adds to recipe.yaml: model, data, …
  std::string data_report = {};  // JSON, for data.json
  int64_t save_every = 0;        // updates between checkpoints; 0: at epochs and every save_minutes
  double save_minutes = 5;
  int64_t log_every = 10;  // updates a line of log.jsonl

  std::function<void(const Progress&)> on_progress = {};
  const std::atomic<bool>* cancel =
      nullptr;  // when true: saves and returns at the end of the batch
};

struct EpochResult {
  int64_t epoch = 0, step = 0;
  double train_loss = 0, train_accuracy = -1;
  double loss = 0, accuracy = -1;  // of validation; NaN, −1 without
  double lr = 0, seconds = 0;
};

struct FitResult {
  bool cancelled = false;
  int64_t steps = 0;  // updates in the whole run
  std::vector<EpochResult> epochs;
  int64_t best_epoch = -1;  // the last one without choose_best
  bool chosen = true;       // choose_best
  int64_t skipped_steps = 0, skipped_batches = 0;
  std::string report() const;  // a line for people
};

// What an exported model needs to know beside its graph.
struct ModelInfo {
  Shape input_shape;      // (C, H, W)
  std::string transform;  // data::Transform recipe, for evaluation
  std::vector<std::string> classes;
  bool classifies = false;  // outputs are logits
};

class CAIRN_API Trainer {
 public:
  // `net` must outlive it.
  Trainer(nn::Module& net, loss::Loss loss, const optim::Config& optimizer);
  ~Trainer();
  Trainer(const Trainer&) = delete;

  // Trains. throws invalid_argument, naming the step and the first operator and module, when a loss
  // is not finite; the weights are then those before that step, and have been saved.
  FitResult fit(Batches data, const FitOptions& options = {});

  // Measures the weights as they are, or their averages after a fit with EMA.
  Evaluation evaluate(Batches data, const std::function<void(const Progress&)>& on_progress = {});

  nn::Module& net() const;
  ModelInfo info() const;  // of the data last seen
  // Puts the averaged weights into the model for good (nothing without EMA).
  void use_averages();
  // Writes the model that evaluate() measures: "image" in, "probabilities" and "logits" out (of
  // classifiers, else "output"), preprocessing and labels in the metadata. It must have seen data.
  void write_onnx(const std::filesystem::path& file);
  PlanStats stats() const;

 private:
  friend struct Fit;
  void with_averages(const std::function<void()>& body);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Weights and recipe of a run directory, for evaluation and export.
struct RunFiles {
  Recipe recipe;
  std::filesystem::path
      weights;  // best.safetensors, or last.safetensors before the first epoch has ended
};
CAIRN_API RunFiles open_run(const std::filesystem::path& folder);
CAIRN_API Recipe run_recipe(const std::filesystem::path& folder);  // throws not_found: holds no run
// throws invalid_argument when a folder holds a run already, as fit() does.
CAIRN_API void refuse_old_run(const std::filesystem::path& folder);

}  // namespace cairn::train
