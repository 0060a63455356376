// SPDX-License-Identifier: Apache-2.0
// Drawn data: the same for a seed, in the promised folders, different by class, never over other files.
#include "data/make.h"

#include <set>

#include "data/testing.h"

namespace cairn::data {
namespace {

using namespace testing;

TEST(Make, ACellDependsOnItsSeedAndIndexAlone) {
  const MakeOptions options{.size = 96, .seed = 3};
  const DrawnCell a = draw_cell(options, 5);
  EXPECT_TRUE(equal(draw_cell(options, 5).picture, a.picture));
  EXPECT_FALSE(equal(draw_cell(options, 6).picture, a.picture));
  EXPECT_FALSE(equal(draw_cell({.size = 96, .seed = 4}, 5).picture, a.picture));
  EXPECT_EQ(a.picture.size(), (Size{96, 96}));
}

TEST(Make, WritesClassFoldersAndAListThatTheReadersTake) {
  TempFolder f;
  const std::string folder = f / "cells";
  make_solar_cells(folder, {.count = 40, .defective = 0.25, .size = 64});
  const Dataset d = image_folder(folder), l = csv_list(folder + "/labels.csv");
  EXPECT_EQ(d.classes(), (std::vector<std::string>{"defective", "functional"}));
  EXPECT_EQ(d.class_counts(), (std::vector<int64_t>{10, 30}));
  EXPECT_EQ(l.class_counts(), d.class_counts());
  EXPECT_EQ(d.listing().found(), 0);  // nothing in the folder is left out, its list neither
  std::set<std::string> types;
  for (const Record& r : l.records()) types.insert(r.stratum);
  EXPECT_EQ(types, (std::set<std::string>{"mono", "poly"}));
  const Checked c = l.check();
  EXPECT_EQ(c.report.count(Bucket::used), 40);
  EXPECT_TRUE(c.grey);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(f.path()), {}), 1);  // nothing else is left
}

TEST(Make, RefusesWhatIsThereAndNonsense) {
  TempFolder f;
  f.put("there/mine.txt", "keep");
  EXPECT_THROW(make_solar_cells(f / "there", {.count = 2, .size = 32}), Error);
  EXPECT_THROW(make_solar_cells(f / "x", {.count = 0}), Error);
  EXPECT_THROW(make_solar_cells(f / "x", {.defective = 1.5}), Error);
  EXPECT_THROW(make_solar_cells(f / "x", {.size = 5}), Error);
  EXPECT_TRUE(std::filesystem::exists(f / "there/mine.txt"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(f.path()), {}), 1);
}

TEST(Make, BrightnessAloneDoesNotTellTheClasses) {
  // The best threshold on the mean of a picture is barely better than always saying "functional".
  const MakeOptions options{.defective = 0.5, .size = 64, .seed = 9};
  std::vector<std::pair<double, bool>> cells;
  for (int i = 0; i < 200; ++i) {
    const DrawnCell c = draw_cell(options, i);
    double sum = 0;
    for (size_t k = 0; k < c.picture.bytes(); ++k) sum += c.picture.row(0)[k];
    cells.emplace_back(sum, c.defective);
  }
  std::sort(cells.begin(), cells.end());
  int best = 0, balance = 0;
  for (const auto& [mean, defective] : cells) best = std::max(best, balance += defective ? 1 : -1);
  EXPECT_LT((100 + best) / 200.0, 0.75);
}

}  // namespace
}  // namespace cairn::data
