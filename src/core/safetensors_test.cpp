// SPDX-License-Identifier: Apache-2.0
// Safetensors: what we write comes back; what the format forbids is refused with the reason; no
// flipped bit and no kill in the middle of a save goes unnoticed. tests/peers compares with the
// reference reader.
#include <cairn/safetensors.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/file.h"
#include "base/random.h"

namespace cairn {
namespace {

struct SafetensorsTest : testing::Test {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("cairn_safetensors_" + std::to_string(::getpid()));
  std::filesystem::path path = folder / "w.safetensors";
  SafetensorsTest() { std::filesystem::create_directories(folder); }
  ~SafetensorsTest() override { std::filesystem::remove_all(folder); }

  // A file of a header and `size` bytes 0, 1, 2, ...
  void write(std::string_view header, size_t size) {
    std::string file(8, '\0');
    const uint64_t length = header.size();
    std::memcpy(file.data(), &length, 8);
    file += header;
    for (size_t i = 0; i < size; ++i) file += char(i);
    write_file(path, file);
  }
  // The error that opening the file and reading all of it gives; empty: none.
  std::string error() {
    try {
      SafetensorsFile(path).tensors();
      return "";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(path.string()), std::string::npos) << e.what();
      return e.what();
    }
  }
  std::string error_of(std::string_view header, size_t size) {
    write(header, size);
    return error();
  }
};
#define EXPECT_REFUSED(text, part) EXPECT_PRED_FORMAT2(testing::IsSubstring, part, text)

NamedTensors all_types() {
  return {
      {"b", Tensor::from<uint8_t>({7, 8, 9}, {3})},
      {"a.weight", Tensor::from<float>({1, 2, 3, 4, NAN, -0.0f}, {2, 3})},
      {"größe \"x\"\n", Tensor::from<double>({0.1}, {})},
      {"empty", Tensor::zeros({2, 0, 3}, DType::i64)},
      {"i64", Tensor::from<int64_t>({INT64_MIN, 1}, {2})},
      {"i32", Tensor::from<int32_t>({-5}, {1})},
      {"i16", Tensor::from<int16_t>({-5, 6, 7}, {3})},
      {"i8", Tensor::from<int8_t>({-128}, {1})},
      {"f16", Tensor::from<Half>({Half{0x3C00}}, {1})},
      {"bf16", Tensor::from<BFloat16>({BFloat16{0x3F80}}, {1, 1})},
      {"mask", Tensor::full({DType::boolean, {5}}, 1)},
  };
}

void expect_same(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.type(), b.type());
  const Tensor x = a.dense(), y = b.dense();
  EXPECT_EQ(std::memcmp(x.bytes(), y.bytes(), size_t(x.type().bytes())), 0);
}

TEST_F(SafetensorsTest, KeepsEveryTypeTheOrderAndTheMetadata) {
  const NamedTensors written = all_types();
  const StringPairs metadata{{"zebra", "1"}, {"step", "120"}, {"note", "ü \"q\" \n"}};
  write_safetensors(path, written, metadata);
  const SafetensorsFile file(path);
  const NamedTensors read = file.tensors();
  ASSERT_EQ(read.size(), written.size());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].first, written[i].first);
    expect_same(read[i].second, written[i].second);
  }
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(*file.metadata("step"), "120");
  EXPECT_EQ(file.metadata("absent"), nullptr);

  const std::string bytes = read_file(path);
  write_safetensors(path, read, file.metadata());
  EXPECT_EQ(read_file(path), bytes) << "the same content gives the same bytes";
}

TEST_F(SafetensorsTest, ReadsWithoutCopyingAndOutlivesTheFile) {
  write_safetensors(path, {{"w", Tensor::from<float>({1, 2, 3, 4}, {4})}});
  Tensor w;
  {
    const SafetensorsFile file(path);
    w = file.tensor("w");
    EXPECT_EQ(w.bytes(), file.tensor("w").bytes());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(w.bytes()) % 64, 0u);
  }
  write_safetensors(path, {{"w", Tensor::zeros({1000})}});  // a newer checkpoint in its place
  EXPECT_EQ(w.to_doubles(), (std::vector<double>{1, 2, 3, 4}));
}

TEST_F(SafetensorsTest, WritingIntoAViewDoesNotReachTheFile) {
  write_safetensors(path, {{"w", Tensor::from<float>({1, 2}, {2})}});
  Tensor w = SafetensorsFile(path).tensor("w");
  w.mutable_data<float>()[0] = 5;
  EXPECT_EQ(SafetensorsFile(path).tensor("w").to_doubles(), (std::vector<double>{1, 2}));
}

TEST_F(SafetensorsTest, WritesStridedTensorsRowByRow) {
  const Tensor rows = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor columns = Tensor::view(rows.storage(), {DType::f32, {3, 2}}, {1, 3});
  write_safetensors(path, {{"t", columns}});
  EXPECT_EQ(SafetensorsFile(path).tensor("t").to_doubles(),
            (std::vector<double>{1, 4, 2, 5, 3, 6}));
}

TEST_F(SafetensorsTest, AcceptsWhatIsValidButOdd) {
  EXPECT_EQ(error_of("{}", 0), "");
  EXPECT_EQ(error_of("{}          \n\t", 0), "");
  EXPECT_EQ(error_of(R"({"__metadata__":null})", 0), "");
  EXPECT_EQ(error_of(R"({"__metadata__":{}})", 0), "");
  EXPECT_EQ(error_of(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4), "");
  EXPECT_EQ(error_of(R"({"e":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]}})", 0), "");
  // Any order, empty tensors in between, unknown fields.
  EXPECT_EQ(
      error_of(
          R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},)"
          R"("e":{"dtype":"I8","shape":[0],"data_offsets":[2,2]},)"
          R"("a":{"x":{"dtype":[{"shape":1}]},"data_offsets":[0,2],"shape":[2],"dtype":"U8","y":null}})",
          4),
      "");
}

TEST_F(SafetensorsTest, CopiesWhatIsNotAligned) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} )";
  ASSERT_NE(header.size() % 4, 0u);
  write(header, 8);
  const Tensor a = SafetensorsFile(path).tensor("a");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.bytes()) % 4, 0u);
  float expected[2];
  std::memcpy(expected, "\0\1\2\3\4\5\6\7", 8);
  EXPECT_EQ(a.values<float>(), std::vector<float>(expected, expected + 2));
}

TEST_F(SafetensorsTest, TakesAnyByteButZeroForTrue) {
  write(R"({"m":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}})", 4);
  EXPECT_EQ(SafetensorsFile(path).tensor("m").values<uint8_t>(),
            (std::vector<uint8_t>{0, 1, 1, 1}));
}

TEST_F(SafetensorsTest, RefusesFilesThatAreSomethingElse) {
  write_file(path, "");
  EXPECT_REFUSED(error(), "has 0 bytes, too few");
  write_file(path, "1234567");
  EXPECT_REFUSED(error(), "has 7 bytes, too few");
  write_file(path, std::string("PK\x03\x04", 4) + "archive/data.pkl");
  EXPECT_REFUSED(error(), "PyTorch file (a pickle)");
  write_file(path, "just some text, long enough");
  EXPECT_REFUSED(error(), "more than the limit of 100000000");
  write("{}", 0);
  write_file(path, read_file(path).substr(0, 9));
  EXPECT_REFUSED(error(), "the header should have 2 bytes, but the file ends after 1");
  EXPECT_REFUSED(error_of("", 0), "does not begin with {");
  EXPECT_REFUSED(error_of(" {}", 0), "does not begin with {");
  EXPECT_REFUSED(error_of("[]", 0), "does not begin with {");
  EXPECT_REFUSED(error_of("{", 0), "not JSON");
  EXPECT_REFUSED(error_of("{} x", 0), "not JSON");
  EXPECT_REFUSED(error_of(std::string_view("{}\0", 3), 0), "not JSON");
  EXPECT_REFUSED(error_of("{\"\xff\":1}", 0), "not JSON");
  EXPECT_THROW(SafetensorsFile(folder / "absent"), Error);
}

TEST_F(SafetensorsTest, RefusesHeadersThatLie) {
  const auto one = [](std::string fields) { return "{\"w\":{" + fields + "}}"; };
  EXPECT_REFUSED(error_of(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 4),
                 "take 8 bytes, but the file has 4");
  EXPECT_REFUSED(error_of(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 9),
                 "take 8 bytes, but the file has 9");
  EXPECT_REFUSED(error_of(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8),
                 "\"w\": F32 [3] takes 12 bytes, but its data has 8");
  EXPECT_REFUSED(error_of(one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), 8),
                 "\"w\": its data is at 8 to 0");
  EXPECT_REFUSED(error_of(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8),
                 "expected from 0 on");
  EXPECT_REFUSED(
      error_of(one(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"), 0),
      "is too large");
  EXPECT_REFUSED(
      error_of(one(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"), 0),
      "is too large");
  EXPECT_REFUSED(
      error_of(one(R"("dtype":"F32","shape":[0,4611686018427387904,8],"data_offsets":[0,0])"), 0),
      "is too large");
  EXPECT_REFUSED(
      error_of(one(R"("dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,0])"), 0),
      "not whole");
  EXPECT_REFUSED(error_of(one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,0])"), 0),
                 "a negative number");
  EXPECT_REFUSED(error_of(one(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), 4),
                 "not whole");
  EXPECT_REFUSED(error_of(one(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), 4),
                 "a number as the value of \"shape\"");
  EXPECT_REFUSED(error_of(one(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), 4),
                 "an array");
  EXPECT_REFUSED(error_of(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), 4),
                 "3 numbers, not 2");
  EXPECT_REFUSED(error_of(one(R"("dtype":"F99","shape":[1],"data_offsets":[0,4])"), 4),
                 "no such dtype: \"F99\"");
  EXPECT_REFUSED(error_of(one(R"("shape":[1],"data_offsets":[0,4])"), 4),
                 "\"w\": \"dtype\" is missing");
  EXPECT_REFUSED(
      error_of(one(R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])"), 4),
      "\"dtype\" is there twice");
  EXPECT_REFUSED(error_of(R"({"w":1})", 0), "a number as the value of \"w\"");
  EXPECT_REFUSED(
      error_of(
          R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
          0),
      "\"w\" is there twice");
  EXPECT_REFUSED(
      error_of(
          R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
          4),
      "\"b\": its data is at 2 to 4, expected from 3 on");
  EXPECT_REFUSED(error_of(R"({"__metadata__":{"k":1}})", 0), "a number as the value of \"k\"");
  EXPECT_REFUSED(error_of(R"({"__metadata__":{"k":{}}})", 0), "an object as the value of \"k\"");
  EXPECT_REFUSED(error_of(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "\"k\" is there twice");
  std::string deep = R"({"w":{"x":)";
  deep.append(1000000, '[');
  EXPECT_REFUSED(error_of(deep, 0), "not JSON");
  std::string shape = "1";
  for (int i = 0; i < 2000; ++i) shape += ",1";
  EXPECT_REFUSED(error_of(one(R"("dtype":"U8","data_offsets":[0,1],"shape":[)" + shape + "]"), 1),
                 "too long");
}

TEST_F(SafetensorsTest, RefusesTypesItHasNotButReadsTheOthers) {
  write(
      R"({"a":{"dtype":"U16","shape":[1],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},)"
      R"("c":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[3,4]}})",
      4);
  const SafetensorsFile file(path);
  EXPECT_EQ(file.tensor("b").item(), 2);
  try {
    file.tensor("a");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::dtype_unsupported);
    EXPECT_REFUSED(e.what(), "\"a\": Cairn has no type U16");
  }
  EXPECT_THROW(file.tensor("c"), Error);
}

TEST_F(SafetensorsTest, NamesWhatWasMeantWhenATensorIsAbsent) {
  write_safetensors(path, {{"model.fc.weight", Tensor::zeros({1})}, {"x", Tensor::zeros({1})}});
  try {
    SafetensorsFile(path).tensor("fc.weight");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::not_found);
    EXPECT_REFUSED(e.what(), "Did you mean model.fc.weight?");
  }
}

TEST_F(SafetensorsTest, NoticesEveryFlippedBit) {
  write_safetensors(path,
                    {{"fc.weight", Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3})},
                     {"fc.bias", Tensor::from<float>({1, 2}, {2})}},
                    {{"step", "7"}});
  const std::string whole = read_file(path);
  const size_t data_at = whole.size() - 32;
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = char(flipped[bit / 8] ^ (1 << (bit % 8)));
    std::ofstream(path, std::ios::binary) << flipped;
    const std::string message = error();
    ASSERT_NE(message, "") << "bit " << bit % 8 << " of byte " << bit / 8;
    if (bit / 8 >= data_at) {
      EXPECT_REFUSED(message, bit / 8 < data_at + 24 ? "\"fc.weight\": its checksum"
                                                     : "\"fc.bias\": its checksum");
    }
  }
}

TEST_F(SafetensorsTest, RefusesToWriteNamesThatCannotStand) {
  const Tensor t = Tensor::zeros({1});
  EXPECT_THROW(write_safetensors(path, {{"a", t}, {"a", t}}), Error);
  EXPECT_THROW(write_safetensors(path, {{"__metadata__", t}}), Error);
  EXPECT_THROW(write_safetensors(path, {{"\xff", t}}), Error);
  EXPECT_THROW(write_safetensors(path, {}, {{"k", "\xff"}}), Error);
  EXPECT_THROW(write_safetensors(path, {}, {{"k", "1"}, {"k", "2"}}), Error);
  EXPECT_THROW(write_safetensors(path, {}, {{"cairn.crc32c:a", "0"}}), Error);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(SafetensorsTest, IsWholeHoweverTheWriterIsKilled) {
  Random random(uint64_t(::getpid()));
  for (int round = 0; round < 30; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int version = 1;; ++version)
        write_safetensors(path,
                          {{"a", Tensor::full({DType::f32, {50000}}, version)},
                           {"b", Tensor::full({DType::f32, {7}}, version)}},
                          {{"version", std::to_string(version)}});
    }
    ::usleep(useconds_t(3000 + random.below(20000)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    if (!std::filesystem::exists(path)) continue;  // killed before the first was there
    ASSERT_EQ(error(), "");
    const SafetensorsFile file(path);
    const double version = std::stod(*file.metadata("version"));
    EXPECT_EQ(file.tensor("a").to_doubles().back(), version);
    EXPECT_EQ(file.tensor("b").to_doubles().front(), version);
  }
}

}  // namespace
}  // namespace cairn
