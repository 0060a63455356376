// SPDX-License-Identifier: Apache-2.0
// What train, eval and export share: from a recipe to data and model, and a progress bar.
#pragma once
#include <cairn/models.h>
#include <cairn/train.h>

#include <functional>
#include <memory>
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
Parts open_parts(const data::Dataset& all, const train::Recipe& recipe);

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
