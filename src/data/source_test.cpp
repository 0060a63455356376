// SPDX-License-Identifier: Apache-2.0
// Folders and lists: what becomes a record, what is left out, and that nothing is lost in silence.
#include "data/source.h"

#include <functional>
#include <set>

#include "data/testing.h"

namespace cairn::data {
namespace {

using namespace testing;

std::vector<std::string> keys(const Listing& l) {
  std::vector<std::string> out;
  for (const Record& r : l.records) out.push_back(r.key);
  return out;
}
using Names = std::vector<std::string>;

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
#define EXPECT_SAYS(statement, text) \
  EXPECT_NE(message_of([&] { statement; }).find(text), std::string::npos) << message_of([&] { statement; })

TEST(Folder, ClassesAreSortedByBytesAndRecordsByKey) {
  TempFolder f;
  for (const char* name : {"b/2.PNG", "b/10.png", "a/x.JPeG", "B/deep/er/1.jpg", "\xC3\xA9/1.png"}) f.put(name, "");
  const Listing l = list_folder(f.path());
  EXPECT_EQ(l.classes, (Names{"B", "a", "b", "\xC3\xA9"}));
  EXPECT_EQ(keys(l), (Names{"B/deep/er/1.jpg", "a/x.JPeG", "b/10.png", "b/2.PNG", "\xC3\xA9/1.png"}));
  EXPECT_EQ(l.records[0].label, 0);
  EXPECT_EQ(l.records[4].label, 3);
  EXPECT_EQ(l.records[1].path, f / "a/x.JPeG");
  EXPECT_EQ(l.report.found(), 0);
}

TEST(Folder, WhatIsNoRecordIsCountedWithItsReason) {
  TempFolder f;
  for (const char* name : {"a/1.png", "b/1.png", ".ipynb_checkpoints/1.png", "a/.DS_Store", "a/._1.png", "b/notes.txt",
                           "loose.png", "readme.md"})
    f.put(name, "");
  std::filesystem::create_symlink("/nowhere/at/all.png", f / "a/gone.png");
  const Listing l = list_folder(f.path());
  EXPECT_EQ(l.classes, (Names{"a", "b"}));
  EXPECT_EQ(l.records.size(), 2u);
  const std::map<std::string, int64_t> expected{{"hidden", 3}, {"not_a_picture_name", 2}, {"no_class", 1}, {"broken_link", 1}};
  EXPECT_EQ(l.report.kinds(), expected);
  EXPECT_EQ(l.report.count(Bucket::skipped), 6);
  EXPECT_EQ(l.report.count(Bucket::failed), 1);
}

TEST(Folder, AClassNameIsText) {
  TempFolder f;
  for (const char* name : {"a/1.png", "caf\xE9/1.png"}) f.put(name, "");
  EXPECT_SAYS(list_folder(f.path()), "the class name \"caf\\xe9\" is not UTF-8 text");
  f.put("l.csv", "a/1.png,fine\na/2.png,\"two\nlines\"\n");
  EXPECT_SAYS(list_csv(f / "l.csv"), "the class name \"two\\x0alines\"");
}

TEST(Folder, LinksAreFollowedOnceAndLoopsEnd) {
  TempFolder f;
  f.put("a/sub/1.png", "");
  f.put("b/1.png", "");
  f.put("elsewhere_is_fine/2.png", "");
  std::filesystem::create_directory_symlink(f / "a", f / "a/sub/loop");
  std::filesystem::create_directory_symlink("sub", f / "a/twin");
  const Listing l = list_folder(f.path());
  EXPECT_EQ(keys(l), (Names{"a/sub/1.png", "b/1.png", "elsewhere_is_fine/2.png"}));
  EXPECT_EQ(l.report.kinds().at("link"), 2);
}

TEST(Folder, AnEmptyClassIsAnErrorUnlessAllowed) {
  TempFolder f;
  f.put("a/1.png", "");
  f.put("c/1.png", "");
  std::filesystem::create_directory(f / "b");
  EXPECT_SAYS(list_folder(f.path()), "/b holds no pictures");
  const Listing l = list_folder(f.path(), {.allow_empty = true});
  EXPECT_EQ(l.classes, (Names{"a", "b", "c"}));
  EXPECT_EQ(l.records[1].label, 2);
  EXPECT_EQ(l.report.kinds().at("empty_class"), 1);
}

TEST(Folder, MistakesGetOneClearError) {
  TempFolder f;
  EXPECT_SAYS(list_folder(f / "none"), "there is no folder");
  EXPECT_SAYS(list_folder(f.path()), "holds no class folders");
  f.put("1.png", "");
  EXPECT_SAYS(list_folder(f / "1.png"), "is not a folder");
  EXPECT_SAYS(list_folder(f.path()), "holds 1 pictures but no class folders");
  f.put("a/x.txt", "");
  EXPECT_SAYS(list_folder(f.path()), "no pictures in the class folders");
}

TEST(Folder, TrainValTestFoldersAreASplit) {
  TempFolder f;
  for (const char* name : {"train/a/1.png", "train/b/2.png", "valid/a/3.png", "Test/b/4.png", ".git/x"}) f.put(name, "");
  const Listing l = list_folder(f.path());
  EXPECT_EQ(l.classes, (Names{"a", "b"}));
  const Dataset d(l.records, l.classes);
  EXPECT_EQ(d.parts(), (Names{"train", "val", "test"}));
  EXPECT_EQ(d.part("test").records()[0].key, "Test/b/4.png");
  EXPECT_EQ(d.part("test").records()[0].label, 1);
  const Split s = d.split({.train = 0.5});
  EXPECT_EQ(s.train.size(), 2);
  EXPECT_EQ(s.test.size(), 1);
  EXPECT_SAYS(Dataset(list_folder(f / "train").records, {"a", "b"}).part("val"), "no split");
}

TEST(Folder, OnePartAloneTakesTheClassesOfTheModel) {
  TempFolder f;
  f.put("test/b/4.png", "");
  const Listing l = list_folder(f / "test", {.classes = {"a", "b", "c"}});
  EXPECT_EQ(l.classes, (Names{"a", "b", "c"}));
  EXPECT_EQ(l.records[0].label, 1);
  EXPECT_SAYS(list_folder(f / "test", {.classes = {"a", "c"}}), "has a class folder \"b\", expected one of: a, c");
}

TEST(Folder, AClassOnlyInTestIsAnError) {
  TempFolder f;
  f.put("train/a/1.png", "");
  f.put("test/z/1.png", "");
  EXPECT_SAYS(list_folder(f.path()), "\"z\"");
}

TEST(Folder, AClassMayBeCalledTrain) {
  TempFolder f;
  f.put("train/1.png", "");
  f.put("bus/1.png", "");
  EXPECT_EQ(list_folder(f.path()).classes, (Names{"bus", "train"}));
}

TEST(Csv, FollowsRfc4180) {
  const auto rows = parse_csv("\xEF\xBB\xBF" "a,\"b,\"\"c\"\"\nd\",e\r\n\r\n\nx,,z\r\nlast,\"\"");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].fields, (Names{"a", "b,\"c\"\nd", "e"}));
  EXPECT_EQ(rows[1].fields, (Names{"x", "", "z"}));
  EXPECT_EQ(rows[1].line, 5);
  EXPECT_EQ(rows[2].fields, (Names{"last", ""}));
  EXPECT_EQ(parse_csv("a,\n")[0].fields, (Names{"a", ""}));
  EXPECT_EQ(parse_csv("a,")[0].fields, (Names{"a", ""}));
  EXPECT_TRUE(parse_csv("").empty());
  EXPECT_SAYS(parse_csv("a,b\nc,\"d\n\n"), "line 2: a quote");
  EXPECT_SAYS(parse_csv("a,\"b\"c"), "line 1: text behind");
}

TEST(Csv, PathsAreRelativeToTheListAndFurtherColumnsAreStrata) {
  TempFolder f;
  f.put("set/labels.csv", "pic/1.png,defective,mono\npic/2.png,functional,poly\n/abs/3.png,functional,mono\n");
  const Listing l = list_csv(f / "set/labels.csv");
  EXPECT_EQ(l.classes, (Names{"defective", "functional"}));
  EXPECT_EQ(l.records[0].path, f / "set/pic/1.png");
  EXPECT_EQ(l.records[0].stratum, "mono");
  EXPECT_EQ(l.records[2].path, "/abs/3.png");
  EXPECT_EQ(l.records[2].line, 3);
}

TEST(Csv, AHeaderMayOrderTheColumns) {
  TempFolder f;
  f.put("l.csv", "Type,Label,Split,Path\nmono,1,train,a.png\npoly,10,test,b.png\npoly,2,train,c.png\nx,2,nope,d.png\n");
  const Listing l = list_csv(f / "l.csv");
  EXPECT_EQ(l.classes, (Names{"1", "2", "10"}));  // numbers sort as numbers
  EXPECT_EQ(l.records[1].part, "test");
  EXPECT_EQ(l.records[1].stratum, "poly");
  EXPECT_EQ(l.records[1].label, 2);
  EXPECT_EQ(l.report.kinds().at("split"), 1);
}

TEST(Csv, BadRowsAreCountedAndDoNotStopTheRest) {
  TempFolder f;
  f.put("l.csv", "a.png,x\r\n\r\nb.png\r\nc.png,x,y\r\n,x\r\nd.png,\r\n./a.png,x\r\na.png,z\r\ne.png,z\r\n");
  const Listing l = list_csv(f / "l.csv");
  EXPECT_EQ(keys(l), (Names{"a.png", "e.png"}));
  const std::map<std::string, int64_t> expected{{"columns", 4}, {"duplicate", 1}, {"conflict", 1}};
  EXPECT_EQ(l.report.kinds(), expected);
  EXPECT_EQ(l.report.findings()[0].line, 3);
  EXPECT_EQ(l.report.count(Bucket::failed), 5);
  EXPECT_EQ(l.report.count(Bucket::skipped), 1);
}

TEST(Csv, MistakesGetOneClearError) {
  TempFolder f;
  f.put("empty.csv", "\n\n");
  f.put("semicolons.csv", "a.png;x\nb.png;y\n");
  f.put("labels.csv", "a.png,x\nb.png,y\n");
  f.put("quote.csv", "a.png,\"x\n");
  f.put("header.csv", "picture,kind\na.png,x\nb.png,y\n");
  EXPECT_SAYS(list_csv(f / "none.csv"), "none.csv");
  EXPECT_SAYS(list_csv(f / "header.csv"), "header.csv:1: \"picture,kind\" is neither a picture nor a header");
  EXPECT_SAYS(list_csv(f / "empty.csv"), "holds no rows");
  EXPECT_SAYS(list_csv(f / "semicolons.csv"), "separated by commas");
  EXPECT_SAYS(list_csv(f / "labels.csv", {.classes = {"x"}}), "labels.csv:2: label \"y\", expected one of: x");
  EXPECT_SAYS(list_csv(f / "quote.csv"), "in " + (f / "quote.csv"));
}

// --- splits ---

Dataset cells(int count, bool reversed = false) {
  std::vector<Record> records;
  for (int i = 0; i < count; ++i) {
    Record r;
    r.key = r.path = "pic" + std::to_string(i) + ".png";
    r.label = i % 3 == 0;
    r.stratum = i % 5 < 2 ? "mono" : "poly";
    records.push_back(r);
  }
  if (reversed) std::reverse(records.begin(), records.end());
  return Dataset(records, {"functional", "defective"});
}

TEST(SplitOf, KeepsLabelsAndStrataInProportion) {
  const Dataset all = cells(1000);
  const Split s = all.split({.train = 0.75, .seed = 1});
  EXPECT_EQ(s.train.size() + s.test.size(), 1000);
  std::map<std::pair<int64_t, std::string>, std::array<int, 2>> count;
  for (const Record& r : s.train.records()) ++count[{r.label, r.stratum}][0];
  for (const Record& r : s.test.records()) ++count[{r.label, r.stratum}][1];
  ASSERT_EQ(count.size(), 4u);
  for (auto& [cell, n] : count) EXPECT_NEAR(n[0], 0.75 * (n[0] + n[1]), 1.0) << cell.second;
  for (int label : {0, 1}) {
    const double total = double(all.class_counts()[size_t(label)]);
    EXPECT_NEAR(double(s.train.class_counts()[size_t(label)]), 0.75 * total, 0.5);
  }
}

TEST(SplitOf, PartsAreDisjointAndComplete) {
  const Split s = cells(97).split({.train = 0.6, .seed = 3});
  std::set<std::string> seen;
  for (const Dataset* d : {&s.train, &s.test})
    for (const Record& r : d->records()) EXPECT_TRUE(seen.insert(r.key).second);
  EXPECT_EQ(seen.size(), 97u);
}

TEST(SplitOf, DependsOnTheSeedAndNotOnTheOrder) {
  const auto train = [](const Dataset& d, uint64_t seed) {
    std::set<std::string> out;
    const Dataset part = d.split({.seed = seed}).train;
    for (const Record& r : part.records()) out.insert(r.key);
    return out;
  };
  EXPECT_EQ(train(cells(200), 1), train(cells(200), 1));
  EXPECT_EQ(train(cells(200), 1), train(cells(200, true), 1));
  EXPECT_NE(train(cells(200), 1), train(cells(200), 2));
}

TEST(SplitOf, ManyTinyStrataStillGiveTheRightShare) {
  std::vector<Record> records;
  for (int i = 0; i < 100; ++i) records.push_back({"", std::to_string(i), 0, "id" + std::to_string(i), "", 0});
  const Split s = Dataset(records, {"a"}).split({.train = 0.75});
  EXPECT_EQ(s.train.size(), 75);
}

TEST(SplitOf, SmallClassesAppearOnBothSides) {
  std::vector<Record> records{{"", "a", 0, "", "", 0}, {"", "b", 0, "", "", 0}, {"", "c", 1, "", "", 0}, {"", "d", 1, "", "", 0}};
  const Split s = Dataset(records, {"x", "y"}).split({.train = 0.9});
  EXPECT_EQ(s.train.class_counts(), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(s.test.class_counts(), (std::vector<int64_t>{1, 1}));
  EXPECT_SAYS(cells(10).split({.train = 1.5}), "train is 1.5");
  EXPECT_SAYS(cells(1).split({}), "cannot be split");
}

TEST(DatasetOf, FingerprintNoticesEveryChange) {
  std::set<uint64_t> seen;
  std::vector<Record> r{{"p", "a", 0, "", "", 0}, {"p", "b", 1, "", "", 0}};
  const auto add = [&](std::vector<Record> records, std::vector<std::string> classes) {
    EXPECT_TRUE(seen.insert(Dataset(records, classes).fingerprint()).second);
  };
  add(r, {"x", "y"});
  add(r, {"y", "x"});
  add({r[1], r[0]}, {"x", "y"});
  add({r[0]}, {"x", "y"});
  r[1].label = 0;
  add(r, {"x", "y"});
  TempFolder f;
  f.put("a.png", "12");
  r[0].path = f / "a.png";
  add(r, {"x", "y"});
  f.put("a.png", "123");
  add(r, {"x", "y"});
}

}  // namespace
}  // namespace cairn::data
