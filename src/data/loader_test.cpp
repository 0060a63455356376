// SPDX-License-Identifier: Apache-2.0
// The loader: the same batches whatever the threads, resumed anywhere, with errors that name the record.
#include "data/loader.h"

#include <fmt/format.h>

#include <set>

#include "base/log.h"
#include "data/testing.h"
#include "data/transform.h"

namespace cairn::data {
namespace {

using namespace testing;

constexpr const char* kAugment = "rgb,random_resized_crop=16:0.4-1,hflip,jitter=0.2:0.2:0.2,normalize=0.5:0.25";

// `count` pictures in two classes; picture i is class i % 2.
Dataset make(const TempFolder& f, int count, Size size = {24, 20}) {
  for (int i = 0; i < count; ++i)
    f.put(fmt::format("{}/{:03}.png", i % 2 ? "odd" : "even", i), encode_png(sample(size.width, size.height, 3, uint64_t(i))));
  return image_folder(f.path());
}

struct Flat {  // everything about the batches of some epochs
  std::vector<float> x;
  std::vector<int64_t> y, records, at;
  bool operator==(const Flat&) const = default;
};

void append(Flat& flat, const Batch& b) {
  const auto x = b.x.values<float>();
  const auto y = b.y.values<int64_t>();
  flat.x.insert(flat.x.end(), x.begin(), x.end());
  flat.y.insert(flat.y.end(), y.begin(), y.end());
  flat.records.insert(flat.records.end(), b.records.begin(), b.records.end());
  flat.at.insert(flat.at.end(), {b.epoch, b.index, b.x.shape()[0]});
}

Flat run(Loader& loader, int epochs) {
  Flat flat;
  for (int e = 0; e < epochs; ++e)
    while (auto b = loader.next()) append(flat, *b);
  return flat;
}

TEST(LoaderOf, GivesTheSameBitsWhateverTheWorkersAndTheCache) {
  TempFolder f;
  const Dataset d = make(f, 23).map(kAugment);
  Loader inline_loader = d.batch(4, {.shuffle = true, .seed = 5, .workers = 0, .cache_bytes = 0});
  const Flat expected = run(inline_loader, 3);
  EXPECT_EQ(expected.records.size(), 69u);
  for (int workers : {0, 1, 2, 4})
    for (size_t cache : {size_t(0), size_t(8000), size_t(-1)})
      for (size_t queue : {size_t(1), size_t(1) << 28}) {
        Loader loader = d.batch(4, {.shuffle = true, .seed = 5, .workers = workers, .queue_bytes = queue, .cache_bytes = cache});
        EXPECT_TRUE(run(loader, 3) == expected) << workers << " " << cache << " " << queue;
      }
  Loader other = d.batch(4, {.shuffle = true, .seed = 6});
  EXPECT_FALSE(run(other, 3) == expected);
}

// More threads than this machine has cores must not matter either; the clamp would hide that.
TEST(LoaderOf, GivesTheSameBitsOnManyThreads) {
  TempFolder f;
  const Dataset d = make(f, 23).map(kAugment);
  Loader one = d.batch(4, {.shuffle = true, .seed = 5, .workers = 0});
  const Flat expected = run(one, 2);
  Loader::Impl many(d, 4, {.shuffle = true, .seed = 5, .workers = 1});
  many.workers_ = 8;
  Flat flat;
  for (int e = 0; e < 2; ++e)
    while (auto b = many.next()) append(flat, *b);
  EXPECT_TRUE(flat == expected);
}

TEST(LoaderOf, EachEpochHoldsEveryRecordOnceInANewOrder) {
  TempFolder f;
  Loader loader = make(f, 10).map("resize=8").batch(3, {.shuffle = true, .seed = 1});
  std::set<std::vector<int64_t>> orders;
  for (int e = 0; e < 3; ++e) {
    const Flat flat = run(loader, 1);
    EXPECT_EQ(std::set<int64_t>(flat.records.begin(), flat.records.end()).size(), 10u);
    EXPECT_TRUE(orders.insert(flat.records).second);
    EXPECT_EQ(flat.at, (std::vector<int64_t>{e, 0, 3, e, 1, 3, e, 2, 3, e, 3, 1}));
  }
}

TEST(LoaderOf, LabelsAndPixelsBelongTogether) {
  TempFolder f;
  const Dataset d = make(f, 12).map("resize=8,normalize=0.5:0.25");
  for (const Batch& b : Loader(d.batch(5, {.shuffle = true, .seed = 2}))) {
    EXPECT_EQ(b.x.type(), (TensorType{DType::f32, {int64_t(b.records.size()), 3, 8, 8}}));
    EXPECT_EQ(b.y.dtype(), DType::i64);
    const auto x = b.x.values<float>();
    for (size_t row = 0; row < b.records.size(); ++row) {
      const Record& r = d.records()[size_t(b.records[row])];
      EXPECT_EQ(b.y.values<int64_t>()[row], r.label);
      const auto alone = load_picture(r.path, d.transform()).values<float>();
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), x.begin() + std::ptrdiff_t(row * alone.size())));
    }
  }
}

TEST(LoaderOf, GoesOnFromAnyPositionAsIfItHadNotStopped) {
  TempFolder f;
  const Dataset d = make(f, 11).map(kAugment);
  const BatchOptions options{.shuffle = true, .seed = 9};
  Loader straight = d.batch(4, options);
  std::vector<std::pair<Position, Flat>> steps;  // where it stood, and what came
  for (int i = 0; i < 8; ++i) {
    steps.emplace_back(straight.position(), Flat{});
    if (auto b = straight.next()) append(steps.back().second, *b);
  }
  EXPECT_EQ(steps[3].first, (Position{0, 3}));  // all batches given, the end not yet told
  EXPECT_EQ(steps[4].first, (Position{1, 0}));
  for (size_t i = 0; i < steps.size(); ++i) {
    Loader again = d.batch(4, options);
    again.seek(steps[i].first);
    for (size_t k = i; k < steps.size(); ++k) {
      EXPECT_EQ(again.position(), steps[k].first);
      Flat flat;
      if (auto b = again.next()) append(flat, *b);
      EXPECT_TRUE(flat == steps[k].second) << i << " " << k;
    }
  }
  straight.seek({0, 1});  // back, with workers in full flight
  Flat flat;
  append(flat, *straight.next());
  EXPECT_TRUE(flat == steps[1].second);
  EXPECT_THROW(straight.seek({0, 4}), Error);
  EXPECT_THROW(straight.seek({-1, 0}), Error);
}

TEST(LoaderOf, ShuffleLaterIsTheSameAsShuffleFromTheStart) {
  TempFolder f;
  const Dataset d = make(f, 9).map(kAugment);
  Loader a = d.batch(4, {.shuffle = true, .seed = 3}), b = d.batch(4);
  b.next();
  b.shuffle(3);
  EXPECT_TRUE(run(a, 2) == run(b, 2));
}

TEST(LoaderOf, DropLastLeavesOutWhatIsNotFull) {
  TempFolder f;
  const Dataset d = make(f, 10).map("resize=8");
  Loader loader = d.batch(4, {.drop_last = true});
  EXPECT_EQ(loader.batches(), 2);
  EXPECT_EQ(run(loader, 1).records.size(), 8u);
  EXPECT_THROW(d.batch(11, {.drop_last = true}), Error);
  EXPECT_THROW(d.batch(0), Error);
  EXPECT_THROW(Dataset().batch(1), Error);
}

TEST(LoaderOf, ABadPictureIsLeftOutCountedAndMovesNothingElse) {
  TempFolder f;
  const Dataset d = make(f, 10).map(kAugment);
  const BatchOptions options{.shuffle = true, .seed = 4};
  Loader whole = d.batch(4, options);
  const Flat expected = run(whole, 1);
  f.put("odd/003.png", "");
  for (int workers : {0, 2}) {
    Loader loader = d.batch(4, {.shuffle = true, .seed = 4, .workers = workers});
    Flat flat = run(loader, 1), without;
    int64_t bad = -1;
    for (size_t i = 0; i < 10; ++i)
      if (d.records()[i].key == "odd/003.png") bad = int64_t(i);
    const size_t picture = 3 * 16 * 16;
    for (size_t i = 0; i < expected.records.size(); ++i)
      if (expected.records[i] != bad) {
        without.records.push_back(expected.records[i]);
        without.x.insert(without.x.end(), expected.x.begin() + std::ptrdiff_t(i * picture),
                         expected.x.begin() + std::ptrdiff_t((i + 1) * picture));
      }
    EXPECT_EQ(flat.records, without.records);
    EXPECT_EQ(flat.x, without.x);
    run(loader, 2);
    const Report r = loader.report();  // once, though seen in three epochs
    ASSERT_EQ(r.findings().size(), 1u);
    EXPECT_EQ(r.findings()[0].file, "odd/003.png");
    EXPECT_EQ(r.findings()[0].kind, "empty");
  }
}

TEST(LoaderOf, CanFailOnABadPictureNamingIt) {
  TempFolder f;
  const Dataset d = make(f, 6).map("resize=8");
  f.put("even/002.png", "nonsense");
  for (int workers : {0, 2}) {
    Loader loader = d.batch(2, {.workers = workers, .fail_on_bad_picture = true});
    int failures = 0, batches = 0;
    for (int i = 0; i < 3; ++i) try {
        batches += loader.next().has_value();
      } catch (const Error& e) {
        ++failures;
        EXPECT_NE(std::string(e.what()).find("even/002.png"), std::string::npos) << e.what();
      }
    EXPECT_EQ(failures, 1);
    EXPECT_EQ(batches, 2);
    EXPECT_EQ(loader.next(), std::nullopt);
  }
}

TEST(LoaderOf, PicturesOfDifferentSizeAreNamedBoth) {
  TempFolder f;
  f.put("a/1.png", encode_png(sample(10, 10, 3)));
  f.put("a/2.png", encode_png(sample(12, 10, 3)));
  const Dataset d = image_folder(f.path());
  for (int workers : {0, 1}) {
    Loader loader = d.batch(2, {.workers = workers});
    try {
      loader.next();
      FAIL();
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_EQ(e.code(), ErrorCode::shape_mismatch);
      for (const char* part : {"a/2.png", "12 x 10", "a/1.png", "10 x 10", "resize="})
        EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
  f.put("a/2.png", encode_png(sample(10, 10, 3)));
  Loader loader = d.batch(2);
  EXPECT_EQ(loader.input_shape(), (Shape{3, 10, 10}));
  EXPECT_EQ(loader.next()->x.shape(), (Shape{2, 3, 10, 10}));
}

TEST(LoaderOf, NothingUsableIsOneClearError) {
  TempFolder f;
  f.put("a/1.png", "");
  f.put("a/2.png", "text");
  Loader loader = image_folder(f.path()).map("resize=8").batch(1);
  EXPECT_THROW(loader.next(), Error);
  EXPECT_THROW(image_folder(f.path()).batch(1), Error);
}

TEST(LoaderOf, EvaluationStopsAtTheEndAndCanBeRepeated) {
  TempFolder f;
  Loader loader = make(f, 6).map("resize=8").batch(4, {.workers = 2});
  const Flat first = run(loader, 1);
  Flat second = run(loader, 1);
  EXPECT_EQ(second.at[0], 1);
  second.at = first.at;
  EXPECT_TRUE(first == second);
}

TEST(LoaderOf, CanBeDroppedAtAnyMoment) {
  TempFolder f;
  const Dataset d = make(f, 20).map(kAugment);
  for (int taken = 0; taken < 6; ++taken) {
    Loader loader = d.batch(3, {.shuffle = true, .workers = 2});
    for (int i = 0; i < taken; ++i) loader.next();
    Loader moved = std::move(loader);
    moved.next();
  }
}

TEST(LoaderOf, ABatchOutlivesItsLoader) {
  TempFolder f;
  std::optional<Batch> batch;
  {
    Loader loader = make(f, 4).map("resize=8").batch(4);
    batch = loader.next();
  }
  EXPECT_EQ(batch->x.values<float>().size(), 4u * 3 * 8 * 8);
}

int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(LoaderOf, MemoryDoesNotGrowWithTheEpochs) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps freed memory";
#endif
  if (resident_bytes() <= 0) GTEST_SKIP() << "no /proc/self/statm here";
  TempFolder f;
  f.put("a/1.png", encode_png(sample(8, 8, 1)));
  std::vector<Record> records(5000, Record{f / "a/1.png", "a/1.png", 0, "", "", 0});
  Loader loader = Dataset(records, {"a"}).map("grey,resize=8").batch(64, {.shuffle = true, .cache_bytes = 0});
  const auto epoch = [&] {
    while (loader.next()) {
    }
  };
  for (int e = 0; e < 3; ++e) epoch();
  const int64_t early = resident_bytes();
  for (int e = 0; e < 12; ++e) epoch();
  EXPECT_LT(resident_bytes() - early, early / 50 + (2 << 20));
}

TEST(LoaderOf, SaysItsMemoryBoundAndKeepsTheCacheWithinIt) {
  TempFolder f;
  std::string said;
  set_log_sink([&](LogLevel, std::string_view category, std::string_view message) {
    if (category == "data") said = message;
  });
  Loader::Impl loader(make(f, 20).map("rgb,resize=16"), 4, {.workers = 1, .queue_bytes = 40'000, .cache_bytes = 5'000});
  while (loader.next()) {
  }
  set_log_sink({});
  EXPECT_EQ(loader.batch_bytes_, 4 * 3 * 16 * 16 * 4);
  EXPECT_EQ(loader.depth_, 3);
  EXPECT_EQ(loader.cached_bytes_, 6 * 768);  // as many 16 x 16 pictures as fit
  EXPECT_NE(said.find("at most 3 batches of 12288 bytes"), std::string::npos) << said;
}

}  // namespace
}  // namespace cairn::data
