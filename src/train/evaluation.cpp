// SPDX-License-Identifier: Apache-2.0
// What an evaluation found, for people, programs and pictures.
#include <cairn/train.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "inspect/plot.h"
#include "train/metrics.h"

namespace cairn::train {

std::string Evaluation::table() const {
  const std::string head = fmt::format("{} records, loss {:.4f}\n", count, loss);
  return metrics ? train::table(*metrics) + head : head;
}

std::string Evaluation::json() const {
  nlohmann::ordered_json out{{"count", count}, {"loss", loss}};
  if (metrics) {
    const auto all = to_json(*metrics);
    for (auto& [key, value] : all.items()) out[key] = value;
  }
  return out.dump();
}

void Evaluation::write_plots(const std::filesystem::path& folder) const {
  if (!metrics) return;
  std::filesystem::create_directories(folder);
  std::vector<std::string> names;
  std::vector<inspect::Roc> curves;
  constexpr size_t kMostCurves = 8;
  for (const ClassMetrics& c : metrics->classes) {
    names.push_back(c.name);
    if (!c.roc.threshold.empty() && curves.size() < kMostCurves)
      curves.push_back({c.name, c.roc.false_positive_rate, c.roc.true_positive_rate, c.roc.area});
  }
  if (names.size() <= 1000)
    write_file(folder / "confusion.png",
               inspect::plot_confusion("Confusion matrix", names, metrics->confusion));
  if (names.size() == 2 && curves.size() == 2)  // one tells all: that of the rarer class
    curves.erase(curves.begin() +
                 (metrics->classes[0].support >= metrics->classes[1].support ? 0 : 1));
  if (!curves.empty()) write_file(folder / "roc.png", inspect::plot_roc("ROC", curves));
}

}  // namespace cairn::train
