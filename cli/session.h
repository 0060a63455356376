// SPDX-License-Identifier: Apache-2.0
// What train, eval and export share: from a recipe to data and model, and a progress bar.
#pragma once
#include <cairn/models.h>
#include <cairn/train.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace cairn::cli {

// The model that a recipe's "model.*" keys describe, with first values from "model.seed".
struct MakeOptions {
  bool draw = true;  // false: leave the first values out
};
std::unique_ptr<nn::Module> make_model(const train::Recipe& recipe, const MakeOptions& options = {});

// The model with the chosen weights of a run.
std::unique_ptr<nn::Module> load_run(const train::RunFiles& run);

// The parts of "data.*": the split that the data came with, else "data.split", "data.val" and
// "data.split_seed". `val` chooses the best epoch; it is empty without one, and `test` where the data
// came with train/ and val/ alone.
struct Parts {
  data::Dataset train, val, test;
};
// "data.fingerprint" of usable pictures: what a resumed run, and an evaluation on the run's own data, must find again.
std::string fingerprint(const data::Dataset& usable);
Parts open_parts(const data::Dataset& all, const train::Recipe& recipe);

// "checking pictures: 120 of 2624" on one line of a terminal; elsewhere nothing. Called from any thread;
// throws cancelled after Ctrl-C.
class Counter {
 public:
  Counter(std::string what, int64_t total);
  void operator()(int64_t done) const;

 private:
  struct Line {
    std::mutex mutex;
    bool over = false;  // the last call may come before the one before it
  };
  std::string what_;
  int64_t total_, step_;
  bool terminal_;
  std::shared_ptr<Line> line_;
};

// Draws a bar on a terminal; elsewhere a log line every few seconds. Everything goes to standard error.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();  // ends the line
  void operator()(const train::Progress& progress);

 private:
  bool terminal_;
  bool open_ = false;
  double last_ = -1e9;
  int64_t last_epoch_ = -1;
  train::Progress::Phase last_phase_ = train::Progress::Phase::train;
};

}  // namespace cairn::cli
