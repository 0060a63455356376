// SPDX-License-Identifier: Apache-2.0
// What train, eval and export share: from a recipe to data and model, and a progress bar.
#pragma once
#include <cairn/models.h>
#include <cairn/train.h>

#include <functional>
#include <memory>
#include <string>

namespace cairn::cli {

// The model that a recipe's "model.*" keys describe, with first values from "train.seed".
std::unique_ptr<nn::Module> make_model(const train::Recipe& recipe);

// The model with the best weights of a run.
std::unique_ptr<nn::Module> load_run(const train::RunFiles& run);

// Train and test sets of "data.*": the split that the data came with, else "data.split" and "data.split_seed".
data::Split open_split(const data::Dataset& all, const train::Recipe& recipe);

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
