// SPDX-License-Identifier: Apache-2.0
// Operators that take indices: from either end, out of range, and the tensors made from nothing.
#include <cairn/ops.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using Doubles = std::vector<double>;

Tensor indices(std::initializer_list<int64_t> v) { return Tensor::from(v, {int64_t(v.size())}); }

TEST(Index, gather_takes_rows_from_either_end) {
  const Tensor x = Tensor::from<float>({0, 1, 10, 11, 20, 21}, {3, 2});
  EXPECT_EQ(gather(x, indices({2, -3, -1})).to_doubles(), (Doubles{20, 21, 0, 1, 20, 21}));
  EXPECT_EQ(gather(x, indices({1}), 1).to_doubles(), (Doubles{1, 11, 21}));
  EXPECT_EQ(gather(x, 1).shape(), (Shape{2}));
  EXPECT_EQ(gather_elements(x, Tensor::from<int64_t>({0, 2}, {1, 2}), 0).to_doubles(),
            (Doubles{0, 21}));
}

TEST(Index, out_of_range_is_an_error_with_value_and_range) {
  const Tensor x = Tensor::zeros({3, 2});
  for (int64_t bad : {int64_t(3), int64_t(-4), INT64_MAX, INT64_MIN}) try {
      gather(x, indices({0, bad}));
      ADD_FAILURE() << bad << " accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(e.message(), "gather: input indices: got " + std::to_string(bad) +
                                 ", expected -3 … 2 for an axis of length 3");
    }
  EXPECT_THROW(gather(Tensor::zeros({0, 2}), indices({0})), Error);
  EXPECT_THROW(scatter_add(Tensor::ones({1, 2}), indices({3}), {3, 2}), Error);
  EXPECT_THROW(gather_elements(x, Tensor::full({DType::i64, {1, 2}}, 3), 0), Error);
}

TEST(Index, scatter_adds_what_falls_on_one_place) {
  const Tensor v = Tensor::from<float>({1, 2, 4}, {3, 1});
  EXPECT_EQ(scatter_add(v, indices({1, 1, -1}), {4, 1}).to_doubles(), (Doubles{0, 3, 0, 4}));
  EXPECT_EQ(
      scatter_elements_add(v, Tensor::from<int64_t>({0, 0, 0}, {3, 1}), {2, 1}, 0).to_doubles(),
      (Doubles{7, 0}));
  try {
    scatter_add(v, indices({0, 1, 2}), {4, 2});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.message(),
              "scatter_add: shape: got [4,2], expected [4,1] for these values and indices");
  }
}

TEST(Index, one_hot_leaves_a_row_of_zeros_for_what_is_no_class) {
  EXPECT_EQ(one_hot(indices({1, -1, 2, -100}), 2).to_doubles(), (Doubles{0, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(one_hot(indices({0}), 2, DType::boolean).dtype(), DType::boolean);
  EXPECT_THROW(one_hot(indices({0}), 0), Error);
}

TEST(Index, full_and_iota_follow_their_dtype) {
  EXPECT_EQ(full({2}, 300, DType::u8).to_doubles(), (Doubles{255, 255}));
  EXPECT_EQ(full({1}, -0.5, DType::i32).to_doubles(), Doubles{0});
  EXPECT_EQ(full({1}, -0.5, DType::boolean).to_doubles(), Doubles{1});
  EXPECT_EQ(iota({2, 2}, 1, DType::i32).to_doubles(), (Doubles{0, 1, 0, 1}));
  EXPECT_EQ(zeros_like(Tensor::ones({2}, DType::i8)).dtype(), DType::i8);
  EXPECT_EQ(ones_like(Tensor::zeros({2})).to_doubles(), (Doubles{1, 1}));
  EXPECT_THROW(full({-1}, 0), Error);
  EXPECT_THROW(iota({2}, 0, DType::boolean), Error);
}

}  // namespace
}  // namespace cairn
