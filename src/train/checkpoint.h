// SPDX-License-Identifier: Apache-2.0
// Checkpoints: everything that a run needs to go on as if it had not stopped, in one safetensors
// file. Weights stand under their plain names, so that other tools read the file as weights.
#pragma once
#include <cairn/train.h>

namespace cairn::train {

// The state of a run between two batches, beside what is in Variables.
struct RunState {
  data::Position
      position;         // of the next batch; batch may be batches(): the end of the epoch is due
  int64_t step = 0;     // updates tried
  int64_t waiting = 0;  // batches accumulated since the last one
  StepCounters counters;
  double loss_sum = 0;  // of this epoch so far, and the records behind it
  int64_t records = 0, right = 0;
  int64_t skipped_batches = 0;
  std::vector<EpochResult> history;
  int64_t best_epoch = -1;
  double best = 0;
};

// `recipe` is kept, to be compared on resume.
void save_checkpoint(const std::filesystem::path& path, const nn::Module& net, const Step& step,
                     const RunState& state, const Recipe& recipe);
// Weights alone, those that were evaluated.
void save_best(const std::filesystem::path& path, const nn::Module& net, const EpochResult& result);

// Reads variables and state, after `check` has seen the recipe. throws when they do not fit this
// model and step, listing what differs; nothing has changed then.
RunState load_checkpoint(const std::filesystem::path& path, const nn::Module& net, Step& step,
                         const std::function<void(const Recipe&)>& check);

}  // namespace cairn::train
