// SPDX-License-Identifier: Apache-2.0
#include "train/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "inspect/plot.h"

namespace cairn::train {
namespace {

using Json = nlohmann::ordered_json;

// The lines of a log up to a step; a last line that a crash left half-written goes too.
std::string kept_lines(const std::string& text, int64_t step) {
  std::string out;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin + 1);
    const Json j = Json::parse(line, nullptr, false);
    if (j.is_object() && j.contains("step") && j["step"].is_number_integer() &&
        j["step"].get<int64_t>() <= step)
      out += line;
  }
  return out;
}

Json value(double v) { return std::isfinite(v) ? Json(v) : Json(); }

}  // namespace

RunDirectory::RunDirectory(std::filesystem::path folder, bool resume) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error)
    fail(ErrorCode::io,
         fmt::format("run: cannot make the folder {}: {}", printable(folder_), error.message()));
  if (!resume) refuse_old_run(folder_);
  // A lock on the folder itself goes with the process, however that ends.
  lock_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ >= 0 && ::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(lock_);
    fail(ErrorCode::invalid_argument,
         fmt::format("run: another process is training in {}", printable(folder_)),
         "Wait for its end, or name another folder");
  }
  remove_leftovers(folder_);
  remove_leftovers(folder_ / "plots");
}

RunDirectory::~RunDirectory() {
  if (log_) std::fclose(log_);
  if (lock_ >= 0) ::close(lock_);
}

bool RunDirectory::has_checkpoint() const {
  return std::filesystem::exists(file("last.safetensors"));
}

void RunDirectory::start(const Recipe& recipe, std::optional<int64_t> resumed_step) {
  write_file(file("recipe.yaml"), recipe.yaml());
  const auto path = file("log.jsonl");
  std::string kept;
  if (resumed_step && std::filesystem::exists(path))
    kept = kept_lines(read_file(path), *resumed_step);
  write_file(path, kept);
  log_ = std::fopen(path.c_str(), "a");
  if (!log_)
    fail(ErrorCode::io,
         fmt::format("run: cannot write {}: {}", printable(path), std::strerror(errno)));
  events_ = std::make_unique<EventFile>(
      folder_, resumed_step ? std::optional(*resumed_step + 1) : std::nullopt);
}

void RunDirectory::log(const Json& line) {
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), log_) != text.size() || std::fflush(log_) != 0)
    fail(ErrorCode::io, fmt::format("run: cannot write {}: {}", printable(file("log.jsonl")),
                                    std::strerror(errno)));
}

void RunDirectory::scalar(std::string_view tag, double v, int64_t step) {
  events_->scalar(tag, v, step);
}
void RunDirectory::flush() { events_->flush(); }

void RunDirectory::write_data(const std::string& check, const std::string& loading,
                              const std::string& validation) {
  Json out = Json::object();
  if (!check.empty()) out["check"] = Json::parse(check);
  if (!loading.empty()) out["loading"] = Json::parse(loading);
  if (!validation.empty()) out["validation"] = Json::parse(validation);
  write_file(file("data.json"), out.dump(2) + "\n");
}

void RunDirectory::write_history(const std::vector<EpochResult>& history, int64_t best_epoch,
                                 bool chosen, const std::string& validation) {
  Json epochs = Json::array();
  inspect::TrainingCurves curves;
  for (const EpochResult& e : history) {
    Json j{{"epoch", e.epoch},
           {"step", e.step},
           {"lr", e.lr},
           {"seconds", e.seconds},
           {"train_loss", value(e.train_loss)}};
    if (e.train_accuracy >= 0) j["train_accuracy"] = e.train_accuracy;
    if (!std::isnan(e.loss)) j["loss"] = value(e.loss);
    if (e.accuracy >= 0) j["accuracy"] = e.accuracy;
    epochs.push_back(std::move(j));
    curves.epochs.push_back(double(e.epoch + 1));
    curves.train_loss.push_back(e.train_loss);
    if (e.train_accuracy >= 0) curves.train_accuracy.push_back(e.train_accuracy);
    if (!std::isnan(e.loss)) curves.test_loss.push_back(e.loss);
    if (e.accuracy >= 0) curves.test_accuracy.push_back(e.accuracy);
  }
  Json out{{"best_epoch", best_epoch}};
  if (best_epoch >= 0) out["best"] = epochs[size_t(best_epoch)];
  if (!validation.empty()) out["last_evaluation"] = Json::parse(validation);
  out["epochs"] = std::move(epochs);
  write_file(file("metrics.json"), out.dump(2) + "\n");
  if (history.empty()) return;
  if (chosen && best_epoch >= 0) curves.best_epoch = double(best_epoch + 1);
  std::filesystem::create_directories(folder_ / "plots");
  write_file(folder_ / "plots" / "training.png", inspect::plot_training("Training", curves));
}

void refuse_old_run(const std::filesystem::path& folder) {
  for (const char* name : {"recipe.yaml", "last.safetensors", "best.safetensors", "model.onnx",
                           "metrics.json", "data.json", "log.jsonl", "plots"})
    if (std::filesystem::exists(folder / name))
      fail(ErrorCode::invalid_argument,
           fmt::format("run: {} holds a run already (there is {})", printable(folder), name),
           "Resume it, or name another folder");
}

Recipe run_recipe(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / "recipe.yaml"))
    fail(ErrorCode::not_found,
         fmt::format("run: {} holds no run (there is no recipe.yaml)", printable(folder)));
  return Recipe::read(folder / "recipe.yaml");
}

RunFiles open_run(const std::filesystem::path& folder) {
  RunFiles out{run_recipe(folder), folder / "best.safetensors"};
  if (!std::filesystem::exists(out.weights)) out.weights = folder / "last.safetensors";
  if (!std::filesystem::exists(out.weights))
    fail(ErrorCode::not_found, fmt::format("run: {} holds no weights yet", printable(folder)),
         "Resume it first");
  return out;
}

}  // namespace cairn::train
