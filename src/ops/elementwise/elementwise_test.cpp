// SPDX-License-Identifier: Apache-2.0
// Elementwise operators at the edges that the conformance suite's samples do not reach.
#include <cairn/autodiff.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cairn {
namespace {

using Doubles = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                 kInf = std::numeric_limits<double>::infinity();

Tensor doubles(const Doubles& v) { return Tensor::from(v, {int64_t(v.size())}); }

// The gradient of sum(f(x)).
template <class F>
Doubles slopes(const Tensor& x, F&& f) {
  Tape tape;
  tape.watch(x);
  return tape.gradient(sum(f(x)), {x})[0].to_doubles();
}

TEST(Elementwise, numbers_take_the_dtype_of_the_other_side) {
  for (DType d : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::u8}) {
    const Tensor x = Tensor::full({d, {2}}, 3);
    EXPECT_EQ((x + 1).type(), x.type());
    EXPECT_EQ((2 * x).to_doubles(), (Doubles{6, 6}));
    EXPECT_EQ((x > 2).to_doubles(), (Doubles{1, 1}));
    EXPECT_EQ(select(x > 2, x, 0).type(), x.type());
  }
}

TEST(Elementwise, two_dtypes_do_not_mix_and_the_error_names_the_line) {
  try {
    Tensor::ones({2}) * Tensor::ones({2}, DType::f64);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::dtype_unsupported);
    EXPECT_EQ(e.message(), "mul: input b: got f64[2], expected f32 as input a");
    ASSERT_FALSE(e.frames().empty());
    EXPECT_TRUE(e.frames()[0].starts_with("elementwise_test.cpp:")) << e.frames()[0];
  }
}

TEST(Elementwise, integers_wrap_and_divide_towards_zero) {
  const Tensor a = Tensor::from<int8_t>({127, -128, -7, 7, 5}, {5}),
               b = Tensor::from<int8_t>({1, -1, 2, -2, 0}, {5});
  EXPECT_EQ((a + b).values<int8_t>(), (std::vector<int8_t>{-128, 127, -5, 5, 5}));
  EXPECT_EQ((a / b).values<int8_t>(), (std::vector<int8_t>{127, -128, -3, -3, 0}));
  const Tensor least = Tensor::from<int64_t>({std::numeric_limits<int64_t>::min()}, {1});
  EXPECT_EQ((least / -1).values<int64_t>()[0], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(neg(least).values<int64_t>()[0], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(abs(least).values<int64_t>()[0], std::numeric_limits<int64_t>::min());
}

TEST(Elementwise, nan_is_never_lost) {
  const Tensor x = doubles({kNan, 1, kNan}), y = doubles({2, kNan, kNan});
  for (const Tensor& t :
       {maximum(x, y), minimum(x, y), x + y, relu(x) + relu(y), clamp(x, 0, 1) + clamp(y, 0, 1),
        softplus(x) * y, hardswish(x) + y, leaky_relu(x) - y, elu(x) - y, sign(x) + sign(y)})
    for (double v : t.to_doubles()) EXPECT_TRUE(std::isnan(v));
  EXPECT_EQ(equal(x, x).to_doubles(), (Doubles{0, 1, 0}));
  EXPECT_EQ(not_equal(x, x).to_doubles(), (Doubles{1, 0, 1}));
  EXPECT_EQ((x <= y).to_doubles(), (Doubles{0, 0, 0}));
}

TEST(Elementwise, activations_are_finite_far_out) {
  const Tensor x = doubles({-1000, 1000});
  EXPECT_EQ(softplus(x).to_doubles(), (Doubles{0, 1000}));
  EXPECT_EQ(sigmoid(x).to_doubles(), (Doubles{0, 1}));
  EXPECT_EQ(silu(x).to_doubles()[1], 1000);
  EXPECT_EQ(gelu(x).to_doubles()[1], 1000);
  for (auto* f : {softplus, sigmoid, silu, gelu, tanh})
    for (double s : slopes(x, [&](const Tensor& t) { return f(t); })) EXPECT_TRUE(std::isfinite(s));
  for (double s : slopes(x, [](const Tensor& t) { return elu(t); })) EXPECT_TRUE(std::isfinite(s));
}

TEST(Elementwise, cast_follows_its_rules) {
  const Tensor x = doubles({-1.9, 1.9, 300, -300, kNan, kInf, -kInf});
  EXPECT_EQ(cast(x, DType::i8).values<int8_t>(),
            (std::vector<int8_t>{-1, 1, 127, -128, 0, 127, -128}));
  EXPECT_EQ(cast(x, DType::u8).values<uint8_t>(), (std::vector<uint8_t>{0, 1, 255, 0, 0, 255, 0}));
  EXPECT_EQ(cast(x, DType::boolean).to_doubles(), (Doubles{1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(cast(x, DType::i64).values<int64_t>()[5], std::numeric_limits<int64_t>::max());
  EXPECT_EQ(cast(Tensor::from<int64_t>({257, -1, 256}, {3}), DType::u8).values<uint8_t>(),
            (std::vector<uint8_t>{1, 255, 0}));
  EXPECT_EQ(cast(Tensor::from<int64_t>({256, 0}, {2}), DType::boolean).to_doubles(),
            (Doubles{1, 0}));
  EXPECT_EQ(cast(x, DType::f64).id(), x.id());
}

TEST(Elementwise, round_takes_halves_to_even) {
  EXPECT_EQ(round(doubles({-2.5, -1.5, -0.5, 0.5, 1.5, 2.5})).to_doubles(),
            (Doubles{-2, -2, -0.0, 0, 2, 2}));
}

TEST(Elementwise, pow_has_a_gradient_at_zero) {
  const Tensor zero = doubles({0}), b = doubles({0});
  EXPECT_EQ(slopes(zero, [](const Tensor& x) { return pow(x, 2); }), Doubles{0});
  EXPECT_EQ(slopes(zero, [](const Tensor& x) { return pow(x, 1); }), Doubles{1});
  EXPECT_EQ(slopes(zero, [](const Tensor& x) { return pow(x, 0); }), Doubles{0});
  EXPECT_EQ(slopes(b, [&](const Tensor& x) { return pow(zero, x); }), Doubles{0});
  EXPECT_EQ(slopes(doubles({-2}), [](const Tensor& x) { return pow(x, 3); }), Doubles{12});
}

TEST(Elementwise, ties_share_the_gradient_evenly) {
  const Tensor x = doubles({1, 2, 3}), y = doubles({2, 2, 2});
  EXPECT_EQ(slopes(x, [&](const Tensor& t) { return maximum(t, y); }), (Doubles{0, 0.5, 1}));
  EXPECT_EQ(slopes(x, [&](const Tensor& t) { return minimum(y, t); }), (Doubles{1, 0.5, 0}));
  EXPECT_EQ(slopes(x, [](const Tensor& t) { return clamp(t, 1, 2); }), (Doubles{1, 1, 0}));
  EXPECT_EQ(slopes(doubles({-1, 0, 1}), [](const Tensor& t) { return relu(t); }),
            (Doubles{0, 0, 1}));
}

TEST(Elementwise, gradients_stop_where_told_and_at_steps) {
  const Tensor x = doubles({0.5, 1.5});
  EXPECT_EQ(slopes(x, [](const Tensor& t) { return t * stop_gradient(t); }), (Doubles{0.5, 1.5}));
  EXPECT_EQ(slopes(x, [](const Tensor& t) { return t + floor(t) + sign(t); }), (Doubles{1, 1}));
}

TEST(Elementwise, clamp_refuses_crossed_bounds_and_rounds_them_inwards_for_integers) {
  EXPECT_THROW(clamp(doubles({1}), 2, 1), Error);
  EXPECT_THROW(clamp(doubles({1}), kNan, 1), Error);
  EXPECT_EQ(clamp(Tensor::from<int32_t>({-3, 0, 3}, {3}), -1.5, 1.5).to_doubles(),
            (Doubles{-1, 0, 1}));
}

}  // namespace
}  // namespace cairn
