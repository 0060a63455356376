// SPDX-License-Identifier: Apache-2.0
// Plots: whole PNGs, right colours in the right places, hostile text. To look at them, run with
// CAIRN_PLOTS=folder.
#include "inspect/plot.h"

#include <cairn/error.h>
#include <cairo.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/random.h"
#include "inspect/font.h"

namespace cairn::inspect {
namespace {

void keep(const char* name, const std::string& png) {
  if (const char* folder = std::getenv("CAIRN_PLOTS"))
    write_file(std::filesystem::path(folder) / name, png);
}

struct Picture {
  explicit Picture(std::string png) : png_(std::move(png)) {
    surface_.reset(cairo_image_surface_create_from_png_stream(
        [](void* self, unsigned char* to, unsigned n) {
          auto& p = *static_cast<Picture*>(self);
          if (p.png_.size() - p.at_ < n) return CAIRO_STATUS_READ_ERROR;
          std::copy_n(p.png_.data() + p.at_, n, to);
          p.at_ += n;
          return CAIRO_STATUS_SUCCESS;
        },
        this));
    EXPECT_EQ(cairo_surface_status(surface_.get()), CAIRO_STATUS_SUCCESS);
  }
  int width() const { return cairo_image_surface_get_width(surface_.get()); }
  int height() const { return cairo_image_surface_get_height(surface_.get()); }
  uint32_t at(int x, int y) const {
    const unsigned char* data = cairo_image_surface_get_data(surface_.get());
    return reinterpret_cast<const uint32_t*>(
               data + y * cairo_image_surface_get_stride(surface_.get()))[x] &
           0xFFFFFF;
  }
  int count(uint32_t colour) const {
    int n = 0;
    for (int y = 0; y < height(); ++y)
      for (int x = 0; x < width(); ++x) n += at(x, y) == colour;
    return n;
  }

 private:
  std::string png_;
  size_t at_ = 0;
  std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)> surface_{
      nullptr, cairo_surface_destroy};
};

LinePlot waves() {
  LinePlot plot{.title = "Learning rate", .x_label = "step", .y_label = "rate"};
  for (int k = 1; k <= 3; ++k) {
    Series s{.name = "wave " + std::to_string(k)};
    for (int i = 0; i <= 200; ++i) s.x.push_back(i), s.y.push_back(std::sin(i * 0.03 * k) / k);
    plot.series.push_back(s);
  }
  return plot;
}

TEST(Plot, DrawsEachSeriesInItsColour) {
  const std::string png = plot_lines(waves());
  keep("lines.png", png);
  const Picture picture(png);
  EXPECT_EQ(picture.width(), 1520);
  for (uint32_t colour : {0x0072B2u, 0xD55E00u, 0x009E73u}) EXPECT_GT(picture.count(colour), 1000);
  EXPECT_EQ(picture.count(0xCC79A7), 0);  // the fourth colour: no fourth series
  EXPECT_EQ(png, plot_lines(waves())) << "the same input gives the same bytes";
}

TEST(Plot, TakesGapsSinglePointsAndNothingAtAll) {
  const double nan = std::nan("");
  const auto blue = [](const LinePlot& p) { return Picture(plot_lines(p)).count(0x0072B2); };
  EXPECT_EQ(blue({}), 0);
  EXPECT_EQ(blue({.series = {{"", {1, 2, 3}, {nan, nan, INFINITY}}}}), 0);
  EXPECT_GT(blue({.series = {{"", {5}, {7}}}}), 5);
  const int whole = blue({.series = {{"", {0, 1, 2, 3, 4}, {1, 1, 1, 1, 1}}}});
  const int gap = blue({.series = {{"", {0, 1, 2, 3, 4}, {1, 1, nan, 1, 1}}}});
  EXPECT_LT(gap, whole * 6 / 10);
  EXPECT_GT(gap, whole * 4 / 10);
  EXPECT_GT(blue({.series = {{"", {0, 1e300}, {-1e300, 1e300}}}}), 100);
  EXPECT_GT(blue({.series = {{"", {0, 1, 2}, {1, 2, 1.7e308}}}}), 100);
  EXPECT_GT(blue({.series = {{"", {0, 1}, {1e17, 1e17 + 64}}}}), 100);
  EXPECT_THROW(blue({.x_range = {{1, 1}}}), Error);
}

TEST(Plot, RefusesSeriesOfUnequalLength) {
  try {
    plot_lines({.series = {{"loss", {1, 2}, {1}}}});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("\"loss\": x has 2 values, y has 1"), std::string::npos) << e.what();
  }
}

TEST(Plot, TextOfAnySortCannotBreakThePicture) {
  const std::string bad = "bad \xff\xfe\n\x1b bytes " + std::string(5000, 'w');
  EXPECT_GT(
      Picture(
          plot_lines(
              {.title = bad, .x_label = bad, .y_label = bad, .series = {{bad, {1, 2}, {1, 2}}}}))
          .height(),
      0);
  const Picture matrix(plot_confusion(bad, {bad, "裂纹"}, {1, 2, 3, 4}));
  EXPECT_LT(matrix.width(), 1500);
}

TEST(Plot, TrainingCurvesShowLossAndAccuracy) {
  TrainingCurves c;
  Random random(1);
  for (int e = 1; e <= 40; ++e) {
    c.epochs.push_back(e);
    c.train_loss.push_back(0.65 * std::exp(-e / 12.0) + 0.02 * random.normal() + 0.1);
    c.test_loss.push_back(0.5 * std::exp(-e / 9.0) + 0.3 + 0.03 * random.normal());
    c.train_accuracy.push_back(1 - 0.35 * std::exp(-e / 14.0) + 0.005 * random.normal());
    c.test_accuracy.push_back(0.86 - 0.2 * std::exp(-e / 8.0) + 0.012 * random.normal());
  }
  c.best_epoch = 33;
  const std::string png = plot_training("ResNet-18 on solar cells", c);
  keep("training.png", png);
  EXPECT_GT(Picture(png).count(0xD55E00), 1000);
  c.test_loss.resize(20);  // a run that was stopped: shorter is fine
  c.train_accuracy.clear();
  EXPECT_GT(Picture(plot_training("", c)).count(0x0072B2), 1000);
}

TEST(Plot, RocCurveRunsAlongTheLeftAndTopForAPerfectClassifier) {
  const Picture perfect(plot_roc("", {{"", {0, 0, 1}, {0, 1, 1}, 1}}));
  const Picture guessing(plot_roc("", {{"", {0, 1}, {0, 1}, 0.5}}));
  EXPECT_GT(perfect.count(0x0072B2), guessing.count(0x0072B2));

  Roc roc{.name = "defective"};
  for (int i = 0; i <= 100; ++i) {
    roc.false_positive_rate.push_back(i / 100.0);
    roc.true_positive_rate.push_back(std::pow(i / 100.0, 0.22));
  }
  roc.area = 0.8197;
  const std::string png = plot_roc("ROC curve on the test set", {roc});
  keep("roc.png", png);
  EXPECT_GT(Picture(png).count(0x0072B2), 1000);
}

TEST(Plot, ConfusionMatrixIsShadedByTheShareOfTheRow) {
  const std::string png = plot_confusion("Confusion matrix on the test set",
                                         {"defective", "functional"}, {162, 43, 31, 420});
  keep("confusion.png", png);
  const Picture picture(png);
  EXPECT_GT(picture.count(0x08306B) + picture.count(0x2171B5), 0);

  const auto identity = [](size_t n) {
    std::vector<std::string> names;
    std::vector<int64_t> counts(n * n);
    Random random(2);
    for (size_t i = 0; i < n; ++i) {
      names.push_back("class number " + std::to_string(i));
      for (size_t j = 0; j < n; ++j) counts[i * n + j] = i == j ? 50 : int64_t(random.below(4));
    }
    return std::pair(names, counts);
  };
  for (size_t n : {1, 6, 20, 200}) {
    const auto [names, counts] = identity(n);
    const std::string many = plot_confusion("Confusion matrix", names, counts);
    keep(("confusion" + std::to_string(n) + ".png").c_str(), many);
    EXPECT_LT(Picture(many).width(), 2000);
  }
  // One class always taken for the other: full shade off the diagonal only.
  const Picture swapped(plot_confusion("", {"a", "b"}, {0, 9, 9, 0}));
  EXPECT_GT(swapped.count(0x08306B), 2 * 150 * 150);
  EXPECT_GT(swapped.count(0xF7FBFF), 2 * 150 * 150);
}

TEST(Plot, ConfusionMatrixRefusesCountsThatDoNotFit) {
  EXPECT_THROW(plot_confusion("", {"a", "b"}, {1, 2, 3}), Error);
  EXPECT_THROW(plot_confusion("", {}, {}), Error);
  EXPECT_THROW(
      plot_confusion("", std::vector<std::string>(1001), std::vector<int64_t>(1001 * 1001)), Error);
}

TEST(Font, IsTheOneThatTheLibraryCarries) {
  EXPECT_EQ(cairo_font_face_status(font()), CAIRO_STATUS_SUCCESS);
  EXPECT_EQ(cairo_font_face_get_type(font()), CAIRO_FONT_TYPE_FT);
}

}  // namespace
}  // namespace cairn::inspect
