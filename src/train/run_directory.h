// SPDX-License-Identifier: Apache-2.0
// The files of a run directory beside its checkpoints. Each is whole or absent; the log grows by
// lines.
#pragma once
#include <cairn/train.h>

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "train/event_file.h"

namespace cairn::train {

class RunDirectory {
 public:
  // Makes the folder, and holds it alone. throws invalid_argument when a run is there and `resume` is
  // off, and when another RunDirectory holds it.
  RunDirectory(std::filesystem::path folder, bool resume);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;

  std::filesystem::path file(std::string_view name) const { return folder_ / name; }
  bool has_checkpoint() const;

  // Opens log and event file; when resuming, what they say of later steps is dropped.
  void start(const Recipe& recipe, std::optional<int64_t> resumed_step);
  void log(const nlohmann::ordered_json& line);  // one with "step" in it
  void scalar(std::string_view tag, double value, int64_t step);
  void flush();
  void write_data(const std::string& check, const std::string& loading, const std::string& validation);
  // metrics.json and plots/training.png; `chosen`: the best epoch was, else it is the last.
  void write_history(const std::vector<EpochResult>& history, int64_t best_epoch, bool chosen,
                     const std::string& validation);

 private:
  std::filesystem::path folder_;
  int lock_ = -1;  // an open folder, locked
  std::FILE* log_ = nullptr;
  std::unique_ptr<EventFile> events_;
};

}  // namespace cairn::train
