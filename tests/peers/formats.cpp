// SPDX-License-Identifier: Apache-2.0
// Writes what tests/peers/formats.py reads with other people's tools, and judges files for it.
//   peer_formats write FOLDER          event file, safetensors, metrics of random scores
//   peer_formats judge FILE...         for each safetensors file "accept" or "refuse"
#include <cairn/safetensors.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/random.h"
#include "inspect/plot.h"
#include "train/event_file.h"
#include "train/metrics.h"

using namespace cairn;

namespace {

void write_events(const std::filesystem::path& folder) {
  train::EventFile events(folder / "events");
  for (int step = 0; step < 100; ++step) events.scalar("loss/train", 1.0 / (1 + step), step);
  events.image("plots/line", inspect::plot_lines({.series = {{"", {0, 1}, {0, 1}}}}), 99);
  events.text("recipe", "model: **resnet18**", 0);
}

// A run that was stopped at step 60 and resumed from its checkpoint at step 50.
void write_resumed_events(const std::filesystem::path& folder) {
  {
    train::EventFile first(folder / "resumed");
    for (int step = 0; step < 60; ++step) first.scalar("loss", 1, step);
  }
  train::EventFile second(folder / "resumed", 50);
  for (int step = 50; step < 80; ++step) second.scalar("loss", 2, step);
}

void write_tensors(const std::filesystem::path& folder) {
  Random random(5);
  NamedTensors tensors;
  for (DType d : kAllDTypes) {
    Tensor t = Tensor::uninitialized({d, {3, 5}});
    for (int64_t i = 0; i < t.type().bytes(); ++i)
      t.mutable_bytes()[i] = std::byte(d == DType::boolean ? random.below(2) : random.below(120));
    tensors.emplace_back(fmt::format("all/{}", name(d)), t);
  }
  tensors.emplace_back("scalar", Tensor::scalar(2.5));
  tensors.emplace_back("empty ü", Tensor::zeros({0, 4}));
  write_safetensors(folder / "all.safetensors", tensors,
                    {{"step", "12"}, {"note", "größer \"x\""}});
}

void write_metrics(const std::filesystem::path& folder) {
  constexpr size_t kSamples = 500, kClasses = 4;
  Random random(6);
  std::vector<int64_t> labels;
  std::vector<float> scores;
  for (size_t i = 0; i < kSamples; ++i) {
    labels.push_back(random.below(kClasses));
    for (size_t c = 0; c < kClasses; ++c)  // coarse, so that there are ties
      scores.push_back(float(random.below(8) + (int64_t(c) == labels.back() ? 3 : 0)) / 16);
  }
  const auto metrics = train::classification_metrics({"a", "b", "c", "d"}, labels, scores);
  write_safetensors(folder / "scores.safetensors",
                    {{"labels", Tensor::from(labels, {kSamples})},
                     {"scores", Tensor::from(scores, {kSamples, kClasses})}});
  auto json = train::to_json(metrics);
  for (size_t c = 0; c < kClasses; ++c) {
    json["classes"][c]["fpr"] = metrics.classes[c].roc.false_positive_rate;
    json["classes"][c]["tpr"] = metrics.classes[c].roc.true_positive_rate;
  }
  write_file(folder / "metrics.json", json.dump(1));
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb == "write" && argc == 3) {
    std::filesystem::create_directories(argv[2]);
    write_events(argv[2]);
    write_resumed_events(argv[2]);
    write_tensors(argv[2]);
    write_metrics(argv[2]);
    return 0;
  }
  if (verb == "judge") {
    for (int i = 2; i < argc; ++i) try {
        const SafetensorsFile file(argv[i]);
        fmt::print("accept\n");
      } catch (const Error& e) {
        fmt::print("refuse {}\n", e.what());
      }
    return 0;
  }
  fmt::print(stderr, "usage: peer_formats write FOLDER | judge FILE...\n");
  return 2;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
