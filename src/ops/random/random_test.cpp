// SPDX-License-Identifier: Apache-2.0
// Random operators: what their numbers depend on, and how they are spread.
#include <cairn/ops.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/catalog.h"
#include "ops/context.h"

namespace cairn {
namespace {

using Doubles = std::vector<double>;

struct Moments {
  double mean, variance, low, high;
};
Moments moments(const Tensor& t) {
  Moments m{0, 0, INFINITY, -INFINITY};
  const auto v = t.to_doubles();
  for (double x : v)
    m.mean += x / double(v.size()), m.low = std::min(m.low, x), m.high = std::max(m.high, x);
  for (double x : v) m.variance += (x - m.mean) * (x - m.mean) / double(v.size());
  return m;
}
Tensor integer(int64_t v) { return Tensor::from({v}, {}); }

TEST(Random, numbers_depend_on_seed_step_path_and_ordinal_alone) {
  const auto draw = [](int64_t seed, int64_t step, const char* path, int skipped = 0) {
    RandomScope scope(integer(seed), integer(step));
    PathScope inside(path);
    for (int i = 0; i < skipped; ++i) random_uniform({3});
    return random_uniform({50}).to_doubles();
  };
  const Doubles first = draw(1, 1, "layer1");
  EXPECT_EQ(draw(1, 1, "layer1"), first);
  EXPECT_NE(draw(2, 1, "layer1"), first);
  EXPECT_NE(draw(1, 2, "layer1"), first);
  EXPECT_NE(draw(1, 1, "layer2"), first);
  EXPECT_NE(draw(1, 1, "layer1", 1), first);
}

TEST(Random, an_element_does_not_depend_on_the_shape_or_dtype) {
  const auto draw = [](const Shape& shape, DType dtype) {
    RandomScope scope(integer(5), integer(6));
    return random_uniform(shape, 0, 1, dtype).to_doubles();
  };
  const Doubles many = draw({8, 5}, DType::f64), few = draw({7}, DType::f32);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
}

TEST(Random, uniform_numbers_fill_their_range) {
  const Moments m = moments(random_uniform({40000}, -1, 3));
  EXPECT_NEAR(m.mean, 1, 0.03);
  EXPECT_NEAR(m.variance, 16. / 12, 0.03);
  EXPECT_GE(m.low, -1);
  EXPECT_LT(m.high, 3);
  for (DType d : {DType::f16, DType::bf16})
    EXPECT_LT(moments(random_uniform({40000}, 0, 1, d)).high, 1);
}

TEST(Random, normal_numbers_have_the_moments_asked_for) {
  const Tensor t = random_normal({40000}, 2, 3);
  const Moments m = moments(t);
  EXPECT_NEAR(m.mean, 2, 0.06);
  EXPECT_NEAR(m.variance, 9, 0.3);
  int64_t within = 0;
  for (double x : t.to_doubles()) within += std::fabs(x - 2) < 3;
  EXPECT_NEAR(double(within) / 40000, 0.6827, 0.01);
}

TEST(Random, refuses_what_makes_no_sense) {
  EXPECT_THROW(random_uniform({2}, 0, 1, DType::i32), Error);
  EXPECT_THROW(random_normal({-2}), Error);
  EXPECT_THROW(apply1(ops::random_uniform_op, {Tensor::zeros({2}, DType::i64), integer(0)}), Error);
}

TEST(Dropout, does_nothing_outside_training) {
  const Tensor x = Tensor::ones({4});
  EXPECT_EQ(dropout(x, 0.5).id(), x.id());
  TrainingScope training(true);
  EXPECT_EQ(dropout(x, 0).id(), x.id());
  EXPECT_EQ(dropout(x, 1).to_doubles(), Doubles(4, 0));
  EXPECT_THROW(dropout(x, 1.5), Error);
  EXPECT_THROW(dropout(x, std::nan("")), Error);
}

TEST(Dropout, keeps_the_mean_and_zeroes_the_share_asked_for) {
  TrainingScope training(true);
  const Moments m = moments(dropout(Tensor::ones({20000}), 0.25));
  EXPECT_NEAR(m.mean, 1, 0.02);
  EXPECT_EQ(m.low, 0);
  EXPECT_NEAR(m.high, 4. / 3, 1e-6);
  int64_t zeros = 0;
  for (double v : dropout(Tensor::ones({20000}, DType::f64), 0.25).to_doubles()) zeros += v == 0;
  EXPECT_NEAR(double(zeros) / 20000, 0.25, 0.015);
}

}  // namespace
}  // namespace cairn
