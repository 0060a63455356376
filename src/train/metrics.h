// SPDX-License-Identifier: Apache-2.0
// Metrics of a classifier: accuracy, per class precision, recall, F1 and ROC, the confusion matrix.
// Each number is scikit-learn's of the same name (tests/peers compares them).
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace cairn::train {

// One class against all others, by its score, from (0,0) to (1,1): a point for each score at which
// the direction changes; samples of equal score move together.
struct RocCurve {
  std::vector<double> false_positive_rate, true_positive_rate;
  std::vector<double> threshold;  // at this score or more: positive; the first is infinite
  // The probability that a positive scores higher than a negative, a tie counting half; exact.
  // NaN, and no points, where there are no positives or no negatives.
  double area;
};

struct ClassMetrics {
  std::string name;
  int64_t support = 0;                       // samples of this class
  double precision = 0, recall = 0, f1 = 0;  // 0 where the quotient would be 0/0
  RocCurve roc;
};

struct Metrics {
  int64_t count = 0;
  double accuracy = 0;
  double balanced_accuracy = 0;  // mean recall of the classes that occur
  double macro_precision = 0, macro_recall = 0, macro_f1 = 0;  // means over all classes
  std::vector<ClassMetrics> classes;
  std::vector<int64_t> confusion;  // [true * classes + predicted]
};

// `scores` has one row a sample, one column a class: probabilities. The first greatest score of a
// row is the prediction. throws invalid_argument on a label out of range, a NaN score, sizes that
// do not fit, or no sample at all.
Metrics classification_metrics(const std::vector<std::string>& class_names,
                               std::span<const int64_t> labels, std::span<const float> scores);

// Without the curves' points: {"accuracy": 0.82, ..., "classes": [{"name": "defective", ...}],
// ...}.
nlohmann::ordered_json to_json(const Metrics& metrics);

// For people: one row a class, then the means.
std::string table(const Metrics& metrics);

}  // namespace cairn::train
