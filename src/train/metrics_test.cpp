// SPDX-License-Identifier: Apache-2.0
// Metrics against numbers worked out by hand. tests/peers compares with scikit-learn.
#include "train/metrics.h"

#include <cairn/error.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/random.h"

namespace cairn::train {
namespace {

// Two classes, the score of class 1 given.
Metrics binary(const std::vector<int64_t>& labels, const std::vector<float>& of_one) {
  std::vector<float> scores;
  for (float s : of_one) scores.push_back(1 - s), scores.push_back(s);
  return classification_metrics({"functional", "defective"}, labels, scores);
}

TEST(Metrics, OfThreeClassesAreAsWorkedOutByHand) {
  //                      true 0: 0 0 1     true 1: 1 1 0 2    true 2: 2
  const std::vector<int64_t> labels{0, 0, 0, 1, 1, 1, 1, 2}, predicted{0, 0, 1, 1, 1, 0, 2, 2};
  std::vector<float> scores;
  for (int64_t p : predicted)
    for (int64_t c = 0; c < 3; ++c) scores.push_back(c == p ? 0.8f : 0.1f);
  const Metrics m = classification_metrics({"a", "b", "c"}, labels, scores);
  EXPECT_EQ(m.confusion, (std::vector<int64_t>{2, 1, 0, 1, 2, 1, 0, 0, 1}));
  EXPECT_DOUBLE_EQ(m.accuracy, 5.0 / 8);
  EXPECT_DOUBLE_EQ(m.classes[0].precision, 2.0 / 3);
  EXPECT_DOUBLE_EQ(m.classes[0].recall, 2.0 / 3);
  EXPECT_DOUBLE_EQ(m.classes[1].precision, 2.0 / 3);
  EXPECT_DOUBLE_EQ(m.classes[1].recall, 2.0 / 4);
  EXPECT_DOUBLE_EQ(m.classes[1].f1, 4.0 / 7);
  EXPECT_DOUBLE_EQ(m.classes[2].precision, 1.0 / 2);
  EXPECT_DOUBLE_EQ(m.classes[2].recall, 1);
  EXPECT_DOUBLE_EQ(m.macro_f1, (2.0 / 3 + 4.0 / 7 + 2.0 / 3) / 3);
  EXPECT_DOUBLE_EQ(m.balanced_accuracy, (2.0 / 3 + 0.5 + 1) / 3);
  EXPECT_EQ(m.classes[1].support, 4);
}

TEST(Metrics, RocFollowsTheSortedScores) {
  const Metrics m = binary({0, 0, 1, 1}, {0.1f, 0.4f, 0.35f, 0.8f});
  const RocCurve& roc = m.classes[1].roc;
  EXPECT_EQ(roc.false_positive_rate, (std::vector<double>{0, 0, 0.5, 0.5, 1}));
  EXPECT_EQ(roc.true_positive_rate, (std::vector<double>{0, 0.5, 0.5, 1, 1}));
  EXPECT_EQ(roc.threshold[1], 0.8f);
  EXPECT_TRUE(std::isinf(roc.threshold[0]));
  EXPECT_DOUBLE_EQ(roc.area, 0.75);
}

TEST(Metrics, TiesInTheScoresCountHalf) {
  EXPECT_EQ(binary({0, 1, 0, 1}, {0.5f, 0.5f, 0.5f, 0.5f}).classes[1].roc.area, 0.5);
  // Pairs (positive, negative): 0.7>0.5, 0.7>0.2, 0.5=0.5, 0.5>0.2.
  const RocCurve roc = binary({1, 1, 0, 0}, {0.7f, 0.5f, 0.5f, 0.2f}).classes[1].roc;
  EXPECT_EQ(roc.area, 3.5 / 4);
  EXPECT_EQ(roc.false_positive_rate, (std::vector<double>{0, 0, 0.5, 1}));
  EXPECT_EQ(roc.true_positive_rate, (std::vector<double>{0, 0.5, 1, 1}));
}

TEST(Metrics, AreaIsTheShareOfWellOrderedPairs) {
  Random random(3);
  std::vector<int64_t> labels;
  std::vector<float> scores;
  for (int i = 0; i < 300; ++i) {
    labels.push_back(random.below(2));
    scores.push_back(float(random.below(20)) / 20 + 0.1f * float(labels.back()));  // many ties
  }
  double pairs = 0, won = 0;
  for (size_t i = 0; i < labels.size(); ++i)
    for (size_t j = 0; j < labels.size(); ++j)
      if (labels[i] == 1 && labels[j] == 0) {
        ++pairs;
        won += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
      }
  const RocCurve roc = binary(labels, scores).classes[1].roc;
  EXPECT_EQ(roc.area, won / pairs);
  double trapezoids = 0;
  for (size_t i = 1; i < roc.threshold.size(); ++i)
    trapezoids += (roc.false_positive_rate[i] - roc.false_positive_rate[i - 1]) *
                  (roc.true_positive_rate[i] + roc.true_positive_rate[i - 1]) / 2;
  EXPECT_NEAR(trapezoids, roc.area, 1e-12) << "the points that were dropped lie on the curve";
}

TEST(Metrics, ClassesThatDoNotOccurAreZeroOrUndefined) {
  const Metrics m = binary({0, 0, 0}, {0.1f, 0.2f, 0.3f});
  EXPECT_EQ(m.accuracy, 1);
  EXPECT_EQ(m.balanced_accuracy, 1);
  EXPECT_EQ(m.classes[1].precision, 0);
  EXPECT_EQ(m.classes[1].recall, 0);
  EXPECT_TRUE(std::isnan(m.classes[1].roc.area));
  EXPECT_TRUE(m.classes[1].roc.threshold.empty());
  EXPECT_TRUE(to_json(m)["classes"][1]["roc_auc"].is_null());
}

TEST(Metrics, RefuseWhatCannotBeMeasured) {
  EXPECT_THROW(binary({0, 2}, {0, 1}), Error);
  EXPECT_THROW(binary({0, -1}, {0, 1}), Error);
  EXPECT_THROW(binary({0, 1}, {0}), Error);
  EXPECT_THROW(binary({}, {}), Error);
  try {
    binary({0, 1}, {0, NAN});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("sample 1 has a score that is not a number"), std::string::npos);
  }
}

TEST(Metrics, TableAndJsonShowTheSameNumbers) {
  const Metrics m = binary({0, 0, 0, 1, 1}, {0.1f, 0.2f, 0.9f, 0.8f, 0.7f});
  EXPECT_EQ(table(m),
            "class       precision  recall      F1  ROC AUC  pictures\n"
            "────────────────────────────────────────────────────────\n"
            "functional     1.0000  0.6667  0.8000   0.6667         3\n"
            "defective      0.6667  1.0000  0.8000   0.6667         2\n"
            "────────────────────────────────────────────────────────\n"
            "mean           0.8333  0.8333  0.8000                  5\n"
            "accuracy                       0.8000                  5\n");
  const auto json = to_json(m);
  EXPECT_EQ(json["accuracy"], 0.8);
  EXPECT_EQ(json["classes"][1]["name"], "defective");
  EXPECT_EQ(json["classes"][1]["recall"], 1.0);
  EXPECT_EQ(json["confusion"].dump(), "[[2,1],[0,2]]");
}

}  // namespace
}  // namespace cairn::train
