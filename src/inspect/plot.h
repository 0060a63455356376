// SPDX-License-Identifier: Apache-2.0
// Plots as PNG: curves over steps or epochs, ROC curves, confusion matrices.
// The colours are told apart by people with any form of colour blindness (Okabe and Ito's palette,
// and dashes besides). Each function returns the bytes of a PNG file, the same bytes for the same
// input.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn::inspect {

struct Series {
  std::string name;          // shown in the legend; empty: not shown there
  std::vector<double> x, y;  // of one length; a value that is not finite leaves a gap
};

struct LinePlot {
  std::string title, x_label, y_label;
  std::vector<Series> series;
  std::optional<std::pair<double, double>> x_range, y_range;  // default: what the data spans
  bool y_percent = false;                                     // 0.82 on the axis reads 82%
  struct Mark {
    double x;
    std::string label;
  };
  std::optional<Mark> mark;  // a vertical line: the best epoch
};
std::string plot_lines(const LinePlot& plot);

// Several side by side, under one title.
std::string plot_panels(const std::string& title, const std::vector<LinePlot>& panels);

// Loss and accuracy over the epochs. A vector may be empty (not measured) or shorter than `epochs`.
struct TrainingCurves {
  std::vector<double> epochs;
  std::vector<double> train_loss, test_loss, train_accuracy, test_accuracy;
  std::optional<double> best_epoch;
};
std::string plot_training(const std::string& title, const TrainingCurves& curves);

// True over false positive rate, each from (0,0) to (1,1), with the area under it.
struct Roc {
  std::string name;  // of the class that counts as positive
  std::vector<double> false_positive_rate, true_positive_rate;
  double area;
};
std::string plot_roc(const std::string& title, const std::vector<Roc>& curves);

// counts[row * n + column]: how many of true class `row` were predicted to be `column`. Shaded by
// the share of the row; with many classes the numbers, then some of the names, are left out; more
// than 1000 classes are refused.
std::string plot_confusion(const std::string& title, const std::vector<std::string>& classes,
                           const std::vector<int64_t>& counts);

}  // namespace cairn::inspect
