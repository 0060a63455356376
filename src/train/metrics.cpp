// SPDX-License-Identifier: Apache-2.0
#include "train/metrics.h"

#include <cairn/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/file.h"
#include "inspect/table.h"

namespace cairn::train {
namespace {

double ratio(int64_t part, int64_t whole) { return whole > 0 ? double(part) / double(whole) : 0; }

// Column `c` of `scores` (rows of `k`) against whether the label is `c`.
RocCurve roc_curve(size_t c, size_t k, std::span<const int64_t> labels,
                   std::span<const float> scores) {
  std::vector<size_t> order(labels.size());
  std::iota(order.begin(), order.end(), size_t(0));
  const auto score = [&](size_t i) { return scores[i * k + c]; };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return score(a) > score(b); });

  const auto positives = int64_t(std::count(labels.begin(), labels.end(), int64_t(c)));
  const auto negatives = int64_t(labels.size()) - positives;
  if (positives == 0 || negatives == 0) return {.area = std::numeric_limits<double>::quiet_NaN()};

  struct Point {
    int64_t false_positives, true_positives;
    double threshold;
  };
  std::vector<Point> points{{0, 0, std::numeric_limits<double>::infinity()}};
  int64_t fp = 0, tp = 0, twice_area = 0;  // of the staircase of counts, in units of half a square
  for (size_t i = 0; i < order.size();) {
    const float tied = score(order[i]);
    int64_t more_fp = 0, more_tp = 0;
    for (; i < order.size() && score(order[i]) == tied; ++i)
      ++(labels[order[i]] == int64_t(c) ? more_tp : more_fp);
    twice_area += more_fp * (2 * tp + more_tp);
    fp += more_fp, tp += more_tp;
    if (points.size() >= 2) {  // drop the last point when it lies on the line to this one
      const Point &a = points[points.size() - 2], &b = points.back();
      if ((b.false_positives - a.false_positives) * (tp - b.true_positives) ==
          (fp - b.false_positives) * (b.true_positives - a.true_positives))
        points.pop_back();
    }
    points.push_back({fp, tp, tied});
  }
  RocCurve roc{.area = double(twice_area) / (2 * double(positives) * double(negatives))};
  for (const Point& p : points) {
    roc.false_positive_rate.push_back(ratio(p.false_positives, negatives));
    roc.true_positive_rate.push_back(ratio(p.true_positives, positives));
    roc.threshold.push_back(p.threshold);
  }
  return roc;
}

}  // namespace

Metrics classification_metrics(const std::vector<std::string>& class_names,
                               std::span<const int64_t> labels, std::span<const float> scores) {
  const size_t k = class_names.size(), n = labels.size();
  if (n == 0 || k == 0 || scores.size() != n * k)
    fail(ErrorCode::invalid_argument,
         fmt::format(
             "metrics: {} labels, {} classes and {} scores: expected one score a label and class",
             n, k, scores.size()));
  Metrics m{.count = int64_t(n)};
  m.confusion.resize(k * k);
  for (size_t i = 0; i < n; ++i) {
    if (labels[i] < 0 || labels[i] >= int64_t(k))
      fail(ErrorCode::invalid_argument,
           fmt::format("metrics: sample {} has label {}: expected 0 to {}", i, labels[i], k - 1));
    const auto row = scores.subspan(i * k, k);
    if (std::any_of(row.begin(), row.end(), [](float s) { return std::isnan(s); }))
      fail(ErrorCode::invalid_argument,
           fmt::format("metrics: sample {} has a score that is not a number", i),
           "The model has diverged: train with a lower learning rate");
    const auto predicted = size_t(std::max_element(row.begin(), row.end()) - row.begin());
    ++m.confusion[size_t(labels[i]) * k + predicted];
  }

  int64_t right = 0, occurring = 0;
  for (size_t c = 0; c < k; ++c) {
    int64_t support = 0, predicted = 0;
    for (size_t j = 0; j < k; ++j)
      support += m.confusion[c * k + j], predicted += m.confusion[j * k + c];
    const int64_t hits = m.confusion[c * k + c];
    m.classes.push_back({.name = class_names[c],
                         .support = support,
                         .precision = ratio(hits, predicted),
                         .recall = ratio(hits, support),
                         .f1 = ratio(2 * hits, support + predicted),
                         .roc = roc_curve(c, k, labels, scores)});
    const ClassMetrics& of = m.classes.back();
    right += hits;
    occurring += support > 0;
    m.balanced_accuracy += of.recall;
    m.macro_precision += of.precision / double(k);
    m.macro_recall += of.recall / double(k);
    m.macro_f1 += of.f1 / double(k);
  }
  m.accuracy = ratio(right, m.count);
  m.balanced_accuracy /= double(occurring);
  return m;
}

nlohmann::ordered_json to_json(const Metrics& m) {
  const auto number = [](double v) {
    return std::isnan(v) ? nlohmann::ordered_json() : nlohmann::ordered_json(v);
  };
  nlohmann::ordered_json json{
      {"count", m.count},
      {"accuracy", m.accuracy},
      {"balanced_accuracy", m.balanced_accuracy},
      {"macro",
       {{"precision", m.macro_precision}, {"recall", m.macro_recall}, {"f1", m.macro_f1}}}};
  auto& classes = json["classes"] = nlohmann::ordered_json::array();
  for (const ClassMetrics& c : m.classes)
    classes.push_back({{"name", printable(c.name)},
                       {"support", c.support},
                       {"precision", c.precision},
                       {"recall", c.recall},
                       {"f1", c.f1},
                       {"roc_auc", number(c.roc.area)}});
  const size_t k = m.classes.size();
  auto& rows = json["confusion"] = nlohmann::ordered_json::array();
  for (size_t r = 0; r < k; ++r)
    rows.push_back(std::vector<int64_t>(m.confusion.begin() + long(r * k),
                                        m.confusion.begin() + long(r * k + k)));
  return json;
}

std::string table(const Metrics& m) {
  using inspect::Table;
  constexpr auto kRight = Table::Align::right;
  Table table({{"class"},
               {"precision", kRight},
               {"recall", kRight},
               {"F1", kRight},
               {"ROC AUC", kRight},
               {"pictures", kRight}});
  const auto show = [](double v) {
    return std::isnan(v) ? std::string("–") : fmt::format("{:.4f}", v);
  };
  for (const ClassMetrics& c : m.classes)
    table.row({c.name, show(c.precision), show(c.recall), show(c.f1), show(c.roc.area),
               std::to_string(c.support)});
  table.rule();
  table.row({"mean", show(m.macro_precision), show(m.macro_recall), show(m.macro_f1), "",
             std::to_string(m.count)});
  table.row({"accuracy", "", "", show(m.accuracy), "", std::to_string(m.count)});
  return table.str();
}

}  // namespace cairn::train
