// SPDX-License-Identifier: Apache-2.0
// Event files, read back by a reader of the test's own. tests/peers/tensorboard.py asks
// TensorBoard.
#include "train/event_file.h"

#include <cairn/error.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <bit>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/crc32c.h"
#include "base/file.h"

namespace cairn::train {
namespace {

uint64_t little_endian(std::string_view bytes) {
  uint64_t v = 0;
  for (size_t i = bytes.size(); i-- > 0;) v = v << 8 | uint8_t(bytes[i]);
  return v;
}

// The payloads of whole records; stops at one that is cut short.
std::vector<std::string> records(std::string_view file) {
  std::vector<std::string> out;
  while (file.size() >= 12) {
    const uint64_t size = little_endian(file.substr(0, 8));
    EXPECT_EQ(little_endian(file.substr(8, 4)), mask_crc(crc32c(file.substr(0, 8))));
    if (file.size() < 12 + size + 4) break;
    const auto data = file.substr(12, size);
    EXPECT_EQ(little_endian(file.substr(12 + size, 4)), mask_crc(crc32c(data)));
    out.emplace_back(data);
    file.remove_prefix(12 + size + 4);
  }
  return out;
}

// Field number → value of a protobuf message without repeated fields.
struct Fields : std::map<int, std::variant<uint64_t, std::string>> {
  explicit Fields(std::string_view in) {
    const auto varint = [&] {
      uint64_t v = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = uint8_t(in.at(0));
        in.remove_prefix(1);
        v |= uint64_t(byte & 127) << shift;
        if (byte < 128) return v;
      }
    };
    const auto take = [&](size_t n) {
      const auto piece = in.substr(0, n);
      in.remove_prefix(n);
      return piece;
    };
    while (!in.empty()) {
      const uint64_t key = varint();
      auto& value = (*this)[int(key >> 3)];
      switch (key & 7) {
        case 0:
          value = varint();
          break;
        case 1:
          value = little_endian(take(8));
          break;
        case 2:
          value = std::string(take(varint()));
          break;
        case 5:
          value = little_endian(take(4));
          break;
        default:
          ADD_FAILURE() << "wire type " << (key & 7);
      }
    }
  }
  uint64_t number(int field) const { return std::get<uint64_t>(at(field)); }
  float real(int field) const { return std::bit_cast<float>(uint32_t(number(field))); }
  const std::string& bytes(int field) const { return std::get<std::string>(at(field)); }
  Fields message(int field) const { return Fields(bytes(field)); }
};

struct EventFileTest : testing::Test {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("cairn_events_" + std::to_string(::getpid()));
  ~EventFileTest() override { std::filesystem::remove_all(folder); }
};

TEST_F(EventFileTest, HoldsScalarsWithStepAndTime) {
  std::filesystem::path path;
  {
    EventFile events(folder);
    path = events.path();
    events.scalar("loss/train", 0.625, 0);
    events.scalar("loss/train", std::nan(""), 1000000);
  }
  EXPECT_TRUE(path.filename().string().starts_with("events.out.tfevents."));
  const auto found = records(read_file(path));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(Fields(found[0]).bytes(3), "brain.Event:2");
  const double time = std::bit_cast<double>(Fields(found[1]).number(1));
  EXPECT_NEAR(time, double(std::time(nullptr)), 60);
  EXPECT_FALSE(Fields(found[1]).contains(2));  // step 0 is protobuf's default
  const Fields first = Fields(found[1]).message(5).message(1);
  EXPECT_EQ(first.bytes(1), "loss/train");
  EXPECT_EQ(first.real(2), 0.625f);
  EXPECT_EQ(Fields(found[2]).number(2), 1000000u);
  EXPECT_TRUE(std::isnan(Fields(found[2]).message(5).message(1).real(2)));
}

TEST_F(EventFileTest, HoldsPicturesAndTexts) {
  std::string png("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\1\x40\0\0\0\xf0\x08\2\0\0\0", 29);
  png.append(20, '\0');
  std::filesystem::path path;
  {
    EventFile events(folder);
    path = events.path();
    events.image("plots/roc", png, 3);
    events.text("recipe", "**bold** größer", 4);
    EXPECT_THROW(events.image("plots/roc", "JFIF", 3), Error);
  }
  const auto found = records(read_file(path));
  ASSERT_EQ(found.size(), 3u);
  const Fields image = Fields(found[1]).message(5).message(1);
  EXPECT_EQ(image.bytes(1), "plots/roc");
  EXPECT_EQ(image.message(4).number(1), 240u);
  EXPECT_EQ(image.message(4).number(2), 320u);
  EXPECT_EQ(image.message(4).number(3), 3u);
  EXPECT_EQ(image.message(4).bytes(4), png);
  const Fields text = Fields(found[2]).message(5).message(1);
  EXPECT_EQ(text.message(8).bytes(8), "**bold** größer");
  EXPECT_EQ(text.message(9).message(1).bytes(1), "text");
}

TEST_F(EventFileTest, IsReadableAfterACrashInTheMiddleOfARecord) {
  EventFile events(folder);
  events.scalar("loss", 1, 1);
  events.scalar("loss", 2, 2);
  events.flush();
  const std::string whole = read_file(events.path());
  EXPECT_EQ(records(whole).size(), 3u);
  EXPECT_EQ(records(std::string_view(whole).substr(0, whole.size() - 5)).size(), 2u);
}

TEST_F(EventFileTest, AResumedRunWritesASecondFileThatDropsTheStepsItRepeats) {
  EventFile first(folder), second(folder, 40);
  EXPECT_NE(first.path(), second.path());
  const auto found = records(read_file(second.path()));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(Fields(found[1]).number(2), 40u);
  EXPECT_EQ(Fields(found[1]).message(7).number(1), 1u);
}

TEST_F(EventFileTest, NamesTheFileWhenItCannotBeWritten) {
  write_file(std::filesystem::temp_directory_path() / folder.filename(), "a file, no folder");
  try {
    EventFile events(folder);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_NE(e.message().find(folder.string()), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace cairn::train
