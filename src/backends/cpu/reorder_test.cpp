// SPDX-License-Identifier: Apache-2.0
// Copies between layouts, against reorder_reference.
#include <gtest/gtest.h>

#include "backends/cpu/backend.h"
#include "backends/cpu/onednn.h"

namespace cairn {
namespace {

std::vector<std::byte> counted(size_t bytes) {
  std::vector<std::byte> v(bytes);
  for (size_t i = 0; i < bytes; ++i) v[i] = std::byte(i * 37 % 101);  // never a NaN pattern
  return v;
}

void expect_same_copy(const TensorType& type, const char* from_tag, const char* to_tag) {
  SCOPED_TRACE(to_string(type) + " " + from_tag + " to " + to_tag);
  const Layout from = Layout::parse(from_tag), to = Layout::parse(to_tag);
  const auto dense = counted(size_t(type.bytes()));
  std::vector<std::byte> src(size_t(from.bytes(type))), want(size_t(to.bytes(type))),
      got(want.size());
  reorder_reference(type, {}, dense.data(), from, src.data());
  reorder_reference(type, from, src.data(), to, want.data());
  const void* in[] = {src.data()};
  void* out[] = {got.data()};
  cpu_backend().reorder(type, from, to)->run(in, out, nullptr);
  EXPECT_EQ(got, want);
}

TEST(Reorder, EqualsTheReferenceForEveryLayoutOfAConvolution) {
  const std::vector<const char*> activations{"abcd", "acdb", "aBcd8b", "aBcd16b"};
  const std::vector<const char*> weights{"abcd",   "ABcd8b8a",   "ABcd8a8b", "Acdb8a",
                                         "Abcd8a", "ABcd16b16a", "Acdb16a"};
  for (const Shape& shape :
       {Shape{2, 32, 5, 7}, Shape{1, 16, 1, 1}, Shape{3, 12, 4, 4}, Shape{0, 8, 3, 3}}) {
    for (auto* from : activations)
      for (auto* to : activations) expect_same_copy({DType::f32, shape}, from, to);
    for (auto* from : weights)
      for (auto* to : weights) expect_same_copy({DType::f32, shape}, from, to);
  }
}

TEST(Reorder, TakesEveryElementType) {
  for (const DType dtype : kAllDTypes) expect_same_copy({dtype, {2, 16, 3, 3}}, "abcd", "aBcd8b");
}

TEST(Reorder, TakesOtherRanks) {
  expect_same_copy({DType::f32, {5, 9}}, "ab", "ba");
  expect_same_copy({DType::f32, {2, 3, 4}}, "abc", "cab");
  expect_same_copy({DType::f32, {16}}, "a", "a");
}

TEST(Reorder, OneDnnDoesTheCommonOnes) {
  EXPECT_TRUE(cpu::onednn::reorder({DType::f32, {2, 16, 3, 3}}, {}, Layout::parse("aBcd8b")));
  EXPECT_TRUE(cpu::onednn::reorder({DType::f32, {16, 16, 3, 3}}, Layout::parse("ABcd8b8a"),
                                   Layout::parse("ABcd8a8b")));
  EXPECT_FALSE(cpu::onednn::reorder({DType::f64, {2, 16, 3, 3}}, {}, Layout::parse("aBcd8b")));
}

}  // namespace
}  // namespace cairn
