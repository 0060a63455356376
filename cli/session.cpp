// SPDX-License-Identifier: Apache-2.0
#include "cli/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "base/file.h"
#include "cli/verbs.h"

namespace cairn::cli {

std::unique_ptr<nn::Module> make_model(const train::Recipe& r, const MakeOptions& o) {
  const int64_t channels = data::Transform(r.text("data.transform")).channels();
  if (r.integer("model.channels") != channels)
    fail(ErrorCode::parse, fmt::format("recipe: model.channels: got {}, but data.transform gives {}",
                                       r.integer("model.channels"), channels));
  return models::make(r.text("model.name"), {.classes = r.integer("model.classes"),
                                             .in_channels = r.integer("model.channels"),
                                             .width = r.number("model.width"),
                                             .small_input = r.flag("model.small_input"),
                                             .input_size = r.integer("model.input_size"),
                                             .seed = uint64_t(r.integer("model.seed")),
                                             .draw = o.draw});
}

std::unique_ptr<nn::Module> load_run(const train::RunFiles& run) {
  auto net = make_model(run.recipe, {.draw = false});
  const auto report = nn::load_weights(*net, run.weights, {.strict = false});
  if (!report.missing.empty() || !report.mismatched.empty())
    fail(ErrorCode::parse, "run: " + printable(run.weights) + " does not fit the recipe beside it: " + report.summary());
  return net;
}

std::string fingerprint(const data::Dataset& usable) { return fmt::format("{:016x}", usable.fingerprint()); }

Parts open_parts(const data::Dataset& all, const train::Recipe& r) {
  const auto seed = uint64_t(r.integer("data.split_seed"));
  const double val = r.has("data.val") ? r.number("data.val") : 0;
  data::Split split = all.split({.train = r.number("data.split"), .seed = seed});
  Parts out{std::move(split.train), {}, std::move(split.test)};
  const auto parts = all.parts();
  if (std::count(parts.begin(), parts.end(), "val") > 0) {
    out.val = all.part("val");
  } else if (val > 0) {
    split = out.train.split({.train = 1 - val, .seed = seed});
    out.train = std::move(split.train), out.val = std::move(split.test);
  }
  return out;
}

namespace {
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string duration(double seconds) {
  const auto s = int64_t(seconds + 0.5);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}
}  // namespace

Counter::Counter(std::string what, int64_t total)
    : what_(std::move(what)), total_(total), step_(std::clamp<int64_t>(total / 100, 1, 100)),
      terminal_(::isatty(STDERR_FILENO)), line_(std::make_shared<Line>()) {}

void Counter::operator()(int64_t done) const {
  stop_if_interrupted();
  if (!terminal_ || (done % step_ != 0 && done != total_)) return;
  const std::lock_guard lock(line_->mutex);
  if (line_->over) return;
  line_->over = done == total_;
  // The line goes when all is done: what follows says the result.
  std::cerr << (done == total_ ? "\r\x1b[K" : fmt::format("\r{}: {} of {}\x1b[K", what_, done, total_)) << std::flush;
}

ProgressBar::ProgressBar() : terminal_(::isatty(STDERR_FILENO)) {}
ProgressBar::~ProgressBar() {
  if (open_) std::cerr << "\n";
}

void ProgressBar::operator()(const train::Progress& p) {
  const bool done = p.batch == p.batches;
  const bool changed = p.epoch != last_epoch_ || p.phase != last_phase_;
  const double interval = terminal_ ? 0.1 : 10;
  if (!done && !changed && now() - last_ < interval) return;
  if (!terminal_ && !done && changed) {  // a line for the beginning of each phase says nothing yet
    last_epoch_ = p.epoch, last_phase_ = p.phase, last_ = now();
    return;
  }
  last_epoch_ = p.epoch, last_phase_ = p.phase, last_ = now();
  const bool training = p.phase == train::Progress::Phase::train;
  std::string text = training ? fmt::format("epoch {}/{}", p.epoch + 1, p.epochs) : std::string("evaluating");
  if (terminal_) {
    constexpr int kWidth = 24;
    const int filled = p.batches ? int(kWidth * p.batch / p.batches) : kWidth;
    std::string bar;
    for (int i = 0; i < kWidth; ++i) bar += i < filled ? "━" : "╌";
    text += " " + bar;
  }
  text += fmt::format(" {}/{}", p.batch, p.batches);
  if (p.pictures_per_second > 0) text += fmt::format("  {:.1f} pictures/s", p.pictures_per_second);
  text += fmt::format("  loss {:.4f}", p.loss);
  if (p.accuracy >= 0) text += fmt::format("  accuracy {:.1f} %", 100 * p.accuracy);
  if (training && p.eta_seconds > 0) text += "  ETA " + duration(p.eta_seconds);
  if (!terminal_) {
    std::cerr << text << "\n";
  } else {
    std::cerr << "\r" << text << "\x1b[K" << (done ? "\n" : "") << std::flush;
    open_ = !done;
  }
}

}  // namespace cairn::cli
