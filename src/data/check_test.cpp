// SPDX-License-Identifier: Apache-2.0
// The data report and the check before training: every item in one bucket, and the buckets add up.
#include "data/check.h"

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/log.h"
#include "data/testing.h"

namespace cairn::data {
namespace {

using namespace testing;

// Two classes of good pictures and one of each trouble.
void fill(const TempFolder& f) {
  const std::string jpeg = encode_jpeg(sample(64, 64, 3)), png = encode_png(sample(64, 64, 1, 2));
  std::string junk = jpeg;
  junk.insert(junk.size() - 2, std::string(102, '\0'));
  f.put("good/1.jpg", jpeg);
  f.put("good/2.PNG", png);
  f.put("good/junk.jpg", junk);
  f.put("good/renamed.jpg", png.substr(0, png.size()));
  f.put("bad/cut.jpg", jpeg.substr(0, jpeg.size() * 6 / 10));
  f.put("bad/head.jpg", jpeg.substr(0, 2));
  f.put("bad/empty.jpg", "");
  f.put("bad/text.JPEG", "hello, world\n");
  f.put("bad/fine.png", png);
  f.put("bad/.DS_Store", "x");
}

TEST(Check, EveryItemEndsInOneBucketWithFileKindAndReason) {
  TempFolder f;
  fill(f);
  const Checked c = image_folder(f.path()).check();
  EXPECT_EQ(c.usable.size(), 5);
  EXPECT_EQ(c.report.found(), 10);
  EXPECT_EQ(c.report.count(Bucket::used), 3);
  EXPECT_EQ(c.report.count(Bucket::repaired), 2);
  EXPECT_EQ(c.report.count(Bucket::skipped), 1);
  EXPECT_EQ(c.report.count(Bucket::failed), 4);
  const auto& k = c.report.kinds();
  EXPECT_EQ(k.at("truncated"), 2);
  EXPECT_EQ(k.at("empty"), 1);
  EXPECT_EQ(k.at("not_a_picture"), 1);
  EXPECT_EQ(k.at("extraneous"), 1);
  EXPECT_EQ(k.at("suffix"), 1);
  EXPECT_EQ(k.at("hidden"), 1);
  EXPECT_EQ(k.at("same_picture_two_labels"), 2);  // good/2.PNG and good/renamed.jpg are bad/fine.png
  EXPECT_EQ(k.at("mixed_channels"), 3);
  EXPECT_FALSE(c.grey);
  EXPECT_EQ(c.smallest, (Size{64, 64}));
  for (const Finding& x : c.report.findings())
    if (x.kind == "truncated") {
      EXPECT_TRUE(x.file == "bad/cut.jpg" || x.file == "bad/head.jpg");
      EXPECT_NE(x.detail.find("ends after"), std::string::npos) << x.detail;
      EXPECT_EQ(x.action, "left out");
    }
}

TEST(Check, ReportsTheSameWhateverTheWorkers) {
  TempFolder f;
  fill(f);
  const Dataset d = image_folder(f.path());
  const std::string one = d.check({.workers = 0}).report.json();
  EXPECT_EQ(d.check({.workers = 1}).report.json(), one);
  EXPECT_EQ(d.check({.workers = 2}).report.json(), one);
}

TEST(Check, TellsItsProgressAndCanBeEnded) {
  TempFolder f;
  fill(f);
  const Dataset d = image_folder(f.path());
  std::atomic<int64_t> calls{0}, sum{0};
  d.check({.progress = [&](int64_t done) { ++calls, sum += done; }});
  EXPECT_EQ(calls, d.size());
  EXPECT_EQ(sum, d.size() * (d.size() + 1) / 2);
  EXPECT_THROW(d.check({.progress = [](int64_t) { fail(ErrorCode::cancelled, "enough"); }}), Error);
}

TEST(Check, JsonAddsUpAndEscapesOddNames) {
  TempFolder f;
  fill(f);
  f.put("bad/new\nline\xFF.jpg", "");
  const auto json = nlohmann::json::parse(image_folder(f.path()).check().report.json());
  EXPECT_EQ(json["found"], 11);
  EXPECT_EQ(json["found"].get<int>(), json["used"].get<int>() + json["repaired"].get<int>() +
                                          json["skipped"].get<int>() + json["failed"].get<int>());
  bool seen = false;
  for (const auto& r : json["records"]) seen |= r["file"] == "bad/new\\x0aline\\xff.jpg" && r["bucket"] == "failed";
  EXPECT_TRUE(seen) << json.dump(1);
}

TEST(Check, NothingUsableIsOneClearError) {
  TempFolder f;
  f.put("a/1.jpg", "");
  f.put("b/2.jpg", "text");
  try {
    image_folder(f.path()).check();
    FAIL();
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("none of the pictures can be used"), std::string::npos) << text;
    EXPECT_NE(text.find("a/1.jpg"), std::string::npos) << text;
    EXPECT_EQ(exit_code(e.code()), 2);
  }
}

TEST(Check, AListNamesTheLineOfAMissingFile) {
  TempFolder f;
  f.put("1.png", encode_png(sample(8, 8, 1)));
  f.put("l.csv", "path,label\n1.png,a\ngone.png,b\n");
  const Checked c = csv_list(f / "l.csv").check();
  ASSERT_EQ(c.report.findings().size(), 1u);
  EXPECT_EQ(c.report.findings()[0].kind, "missing");
  EXPECT_EQ(c.report.findings()[0].line, 3);
  EXPECT_TRUE(c.grey);
}

TEST(Check, APictureInTrainAndTestIsALeak) {
  TempFolder f;
  const std::string png = encode_png(sample(8, 8, 1));
  f.put("train/a/1.png", png);
  f.put("train/a/2.png", encode_png(sample(8, 8, 1, 2)));
  f.put("test/a/other_name.png", png);
  const Report r = image_folder(f.path()).check().report;
  EXPECT_EQ(r.kinds().at("leak"), 1);
  EXPECT_EQ(r.count(Bucket::used), 3);
}

TEST(ReportOf, KeepsCountsExactWhenTheListIsFull) {
  Report r;
  for (int i = 0; i < 2500; ++i) r.add({Bucket::skipped, std::to_string(i), 0, "hidden", "", ""});
  r.add_used(5);
  EXPECT_EQ(r.findings().size(), size_t(Report::kMaxListed));
  EXPECT_EQ(r.count(Bucket::skipped), 2500);
  Report other;
  other.merge(r);
  other.merge(r);
  EXPECT_EQ(other.found(), 5010);
  EXPECT_EQ(other.findings().size(), size_t(Report::kMaxListed));
  EXPECT_EQ(nlohmann::json::parse(other.json())["unlisted"], 4000);
  EXPECT_NE(r.summary().find("2505 found: 5 used, 0 repaired, 2500 skipped, 0 failed"), std::string::npos);
}

TEST(Workers, AreCutDownToTheCoresWithANote) {
  std::string said;
  set_log_sink([&](LogLevel, std::string_view, std::string_view message) { said = message; });
  const int cores = int(std::thread::hardware_concurrency());
  EXPECT_EQ(worker_count(10'000), cores);
  set_log_sink({});
  EXPECT_NE(said.find("10000 workers asked for"), std::string::npos) << said;
  EXPECT_EQ(worker_count(0), 0);
  EXPECT_GE(worker_count(-1), 1);
}

TEST(Workers, CarryTheFirstErrorOut) {
  for (int workers : {0, 1, 3}) {
    std::atomic<int> done{0};
    EXPECT_THROW(for_each_on_workers(100, workers, [&](int64_t i) {
      if (i == 5) fail(ErrorCode::io, "five");
      ++done;
    }), Error);
    std::atomic<int64_t> sum{0};
    for_each_on_workers(100, workers, [&](int64_t i) { sum += i; });
    EXPECT_EQ(sum, 4950);
  }
}

}  // namespace
}  // namespace cairn::data
