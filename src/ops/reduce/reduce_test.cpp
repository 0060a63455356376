// SPDX-License-Identifier: Apache-2.0
// Reductions at the edges that the conformance suite's samples do not reach.
#include <cairn/autodiff.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cairn {
namespace {

using Doubles = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                 kInf = std::numeric_limits<double>::infinity();

Tensor matrix(std::initializer_list<double> v, int64_t columns) {
  return Tensor::from(v, {int64_t(v.size()) / columns, columns});
}

template <class F>
Doubles slopes(const Tensor& x, F&& f) {
  Tape tape;
  tape.watch(x);
  return tape.gradient(sum(f(x)), {x})[0].to_doubles();
}

TEST(Reduce, axes_count_from_either_end_and_none_means_all) {
  const Tensor x = matrix({1, 2, 3, 4, 5, 6}, 3);
  EXPECT_EQ(sum(x).item(), 21);
  EXPECT_EQ(sum(x, {0}).to_doubles(), (Doubles{5, 7, 9}));
  EXPECT_EQ(sum(x, {-1}, Keep::yes).shape(), (Shape{2, 1}));
  EXPECT_EQ(mean(x, {0, 1}).item(), 3.5);
  EXPECT_EQ(prod(x, {1}).to_doubles(), (Doubles{6, 120}));
  EXPECT_THROW(sum(x, {2}), Error);
  EXPECT_THROW(sum(x, {1, -1}), Error);
}

TEST(Reduce, nothing_sums_to_zero_but_has_no_greatest) {
  const Tensor none = Tensor::zeros({0, 2});
  EXPECT_EQ(sum(none, {0}).to_doubles(), (Doubles{0, 0}));
  EXPECT_EQ(prod(none, {0}).to_doubles(), (Doubles{1, 1}));
  EXPECT_TRUE(std::isnan(mean(none, {0}).to_doubles()[0]));
  EXPECT_EQ(max(none, {1}).numel(), 0);
  for (auto f :
       {+[](const Tensor& t) { return max(t, {0}); }, +[](const Tensor& t) { return min(t); },
        +[](const Tensor& t) { return argmax(t, 0); }})
    try {
      f(none);
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::shape_mismatch);
      EXPECT_NE(e.message().find("got f32[0,2], expected at least one element along axis 0"),
                e.message().npos)
          << e.message();
    }
}

TEST(Reduce, greatest_shares_its_gradient_among_equals) {
  EXPECT_EQ(slopes(matrix({1, 3, 3, 2, 0, 1}, 3), [](const Tensor& t) { return max(t, {1}); }),
            (Doubles{0, 0.5, 0.5, 1, 0, 0}));
  EXPECT_EQ(slopes(matrix({1, 3, 3, 0, 0, 0}, 3), [](const Tensor& t) { return min(t, {1}); }),
            (Doubles{1, 0, 0, 1. / 3, 1. / 3, 1. / 3}));
}

TEST(Reduce, nan_wins) {
  const Tensor x = matrix({1, kNan, 3, kNan}, 4);
  EXPECT_TRUE(std::isnan(max(x).item()));
  EXPECT_TRUE(std::isnan(min(x).item()));
  EXPECT_EQ(argmax(x).item(), 1);
  EXPECT_EQ(argmin(x).item(), 1);
}

TEST(Reduce, argmax_is_the_first_of_equals) {
  EXPECT_EQ(argmax(matrix({1, 3, 3, 2, 2, 2}, 3)).to_doubles(), (Doubles{1, 0}));
  EXPECT_EQ(argmin(matrix({1, 3, 1, 2, 2, 2}, 3), 0, Keep::yes).to_doubles(), (Doubles{0, 1, 0}));
  EXPECT_EQ(argmax(matrix({1, 2}, 2)).dtype(), DType::i64);
}

TEST(Reduce, product_has_a_gradient_with_zeros_among_its_factors) {
  const auto row_product = [](const Tensor& t) { return prod(t, {1}); };
  EXPECT_EQ(slopes(matrix({2, 0, 3}, 3), row_product), (Doubles{0, 6, 0}));
  EXPECT_EQ(slopes(matrix({0, 0, 3}, 3), row_product), (Doubles{0, 0, 0}));
  EXPECT_EQ(slopes(matrix({2, 5, 3}, 3), row_product), (Doubles{15, 6, 10}));
}

TEST(Reduce, softmax_and_its_logarithm_are_safe_for_large_inputs) {
  const Tensor x = matrix({1000, 1001, -1000}, 3);
  const auto y = softmax(x).to_doubles(), log_y = log_softmax(x).to_doubles();
  EXPECT_NEAR(y[0], 1 / (1 + std::exp(1)), 1e-12);
  EXPECT_EQ(y[2], 0);
  for (int k = 0; k < 2; ++k) EXPECT_NEAR(log_y[size_t(k)], std::log(y[size_t(k)]), 1e-12);
  EXPECT_NEAR(log_y[2], -2001 - std::log1p(std::exp(-1)), 1e-9);
  EXPECT_EQ(softmax(matrix({0, -kInf}, 2)).to_doubles(), (Doubles{1, 0}));
}

}  // namespace
}  // namespace cairn
