// SPDX-License-Identifier: Apache-2.0
#include "ops/loss/cross_entropy.h"

#include <cmath>

#include "ops/catalog.h"
#include "ops/testing.h"

namespace cairn::ops {
namespace {

Tensor logits() { return pattern({3, 5, 4}, 7); }
Tensor labels() {
  return Tensor::from<int64_t>({0, 4, 2, -100, 1, 1, 3, 0, 2, -100, 4, 4}, {3, 4});
}
Tensor class_weights() { return positive_pattern({5}, 8); }

TEST(CrossEntropy, IsMinusTheLogOfTheLabelsProbability) {
  const Tensor x = Tensor::from<double>({std::log(1.0), std::log(3.0)}, {1, 2});
  EXPECT_NEAR(cross_entropy(x, Tensor::from<int64_t>({0}, {1})).item(), std::log(4.0), 1e-15);
  EXPECT_NEAR(cross_entropy(x, Tensor::from<int64_t>({1}, {1})).item(), std::log(4.0 / 3), 1e-15);
}

TEST(CrossEntropy, MeansFollowPyTorch) {
  EXPECT_NEAR(cross_entropy(logits(), labels()).item(), 1.7522727342348283, 1e-14);
  EXPECT_NEAR(cross_entropy(logits(), labels(), 0.1).item(), 1.7511321092348284, 1e-14);
  EXPECT_NEAR(cross_entropy(logits(), labels(), 0, class_weights()).item(), 1.7210402996263428,
              1e-14);
  EXPECT_NEAR(cross_entropy(logits(), labels(), 0.1, class_weights()).item(), 1.7287072170644004,
              1e-14);
}

TEST(CrossEntropy, EachRecordFollowsPyTorch) {
  expect_gradients(
      [](auto& in) { return std::vector{cross_entropy_each(in[0], labels())}; }, {logits()},
      {{1.494896462614, 17.52272734235, 0.9660519489425}}, {{0.7681527054849, 0, 0.8488573280684}},
      {{0.0838360780309, 0, 0.2176831620408}, {0.377501115756, -1.241707903548, -0.9796922631047}});
  expect_gradients(
      [](auto& in) { return std::vector{cross_entropy_each(in[0], labels(), 0.1)}; }, {logits()},
      {{1.517708962614, 17.51132109235, 0.8063958820479}}, {{0.6889339554849, 0, 0.7601913277022}},
      {{0.0838360780309, 0, 0.2176831620408}, {0.321485490756, -1.213700091048, -0.888006700971}});
}

TEST(CrossEntropy, WeightedSmoothGradientFollowsPyTorch) {
  const Tensor z = logits();
  Tape tape;
  tape.watch(z);
  const Tensor loss = cross_entropy(z, labels(), 0.1, class_weights());
  expect_digest("dlogits", tape.gradient(loss, std::vector{z})[0],
                {-0.07976438437688, 0, 0.2357992286874});
}

TEST(CrossEntropy, IgnoredRecordsHaveNoLossAndNoGradient) {
  const Tensor z = pattern({2, 3}, 1), y = Tensor::from<int64_t>({kIgnoredLabel, 1}, {2});
  EXPECT_EQ(cross_entropy_each(z, y, 0.3).values<double>()[0], 0);
  EXPECT_EQ(cross_entropy(z, y).item(), cross_entropy_each(z, y).values<double>()[1]);
  Tape tape;
  tape.watch(z);
  const auto g = tape.gradient(cross_entropy(z, y, 0.3), std::vector{z})[0].values<double>();
  EXPECT_EQ(std::vector(g.begin(), g.begin() + 3), std::vector<double>(3, 0));
  EXPECT_NE(g[3], 0);
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  const Tensor z = Tensor::from<double>({1000, 0, -1000, 0}, {2, 2});
  EXPECT_EQ(cross_entropy_each(z, Tensor::from<int64_t>({0, 0}, {2})).values<double>(),
            (std::vector<double>{0, 1000}));
}

TEST(CrossEntropy, GradientMeansTheSameDecomposed) {
  const Params p = CrossEntropyParams{0.1};
  const std::vector<Tensor> in{pattern({3, 4}, 2), logits(), labels(), pattern({3, 4}, 3),
                               class_weights()};
  expect_digest("weighted", cross_entropy_grad_op.decompose(p, in)[0],
                digest(apply(cross_entropy_grad_op, in, p)[0]));
  const std::vector<Tensor> four(in.begin(), in.begin() + 4);
  expect_digest("plain", cross_entropy_grad_op.decompose({CrossEntropyParams{}}, four)[0],
                digest(apply(cross_entropy_grad_op, four, CrossEntropyParams{})[0]));
}

TEST(CrossEntropy, ErrorsNameArgumentGotAndExpected) {
  const Tensor z = Tensor::zeros({2, 3}, DType::f64);
  expect_error(
      [&] {
        cross_entropy(z, Tensor::from<int64_t>({0, 3}, {2}));
      },
      {"cross_entropy: input labels: got 3 for record 1, expected 0 … 2",
       "cross_entropy_test.cpp:"});
  expect_error([&] { cross_entropy(z, Tensor::from<int64_t>({0}, {1})); },
               {"input labels: got i64[1], expected [2]"});
  expect_error([&] { cross_entropy(z, z); }, {"input labels"});
  expect_error(
      [&] {
        cross_entropy(z, Tensor::from<int64_t>({0, 1}, {2}), 1.5);
      },
      {"parameter smoothing: got 1.5"});
  expect_error(
      [&] {
        cross_entropy(z, Tensor::from<int64_t>({0, 1}, {2}), 0, Tensor::ones({2}, DType::f64));
      },
      {"input class_weights: got f64[2], expected [3]"});
}

}  // namespace
}  // namespace cairn::ops
