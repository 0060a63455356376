// SPDX-License-Identifier: Apache-2.0
#include "ops/nn/pool.h"

#include <cmath>
#include <utility>

#include "ops/catalog.h"
#include "ops/nn/window.h"
#include "ops/testing.h"

namespace cairn::ops {
namespace {

constexpr Digest kZero{0, 0, 0};
const Shape kPicture{2, 3, 7, 6};

TEST(MaxPool, GivesTheMaximumAndItsPlace) {
  const Tensor x = Tensor::from<double>({1, 5, 5, 2, 0, 3, -1, -7, -1, -2, -3, -1}, {1, 1, 3, 4});
  const auto out = apply(max_pool_op, {{x}}, MaxPoolParams{.stride = {1, 2}});
  EXPECT_EQ(out[0].values<double>(), (std::vector<double>{5, 5, 3, -1}));
  EXPECT_EQ(out[1].values<int32_t>(), (std::vector<int32_t>{1, 2, 5, 6}));  // of equals the first
}

TEST(MaxPool, PaddingNeverWinsAndNanAlwaysDoes) {
  const Tensor low = Tensor::full({DType::f64, {1, 1, 2, 2}}, -9);
  const PoolOptions padded{
      .kernel_h = 3, .kernel_w = 3, .stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1};
  EXPECT_EQ(max_pool2d(low, padded).values<double>(), std::vector<double>(4, -9));
  const Tensor x = Tensor::from<double>({NAN, 1, 2, 3}, {1, 1, 2, 2});
  EXPECT_TRUE(std::isnan(max_pool2d(x, {}).item()));
}

TEST(MaxPool, PaddingStrideAndDilationFollowPyTorch) {
  const MaxPoolParams p{.kernel = {3, 2},
                        .stride = {2, 1},
                        .pad_before = {1, 1},
                        .pad_after = {1, 1},
                        .dilation = {1, 2}};
  expect_gradients([&](auto& in) { return std::vector{apply(max_pool_op, in, p)[0]}; },
                   {pattern(kPicture, 4)}, {{0.548828125, 92.923828125, 0.05517196655273}},
                   {{0, -3.818359375, 11.23330688477}},
                   {kZero, {-0.228515625, -19.013671875, 1.207523345947}});
  expect_digest("indices", apply(max_pool_op, {{pattern(kPicture, 4)}}, p)[1],
                {1, 3072, -58.77734375});
}

TEST(MaxPool, CeilModeFollowsPyTorch) {
  const PoolOptions o{.kernel_h = 3, .kernel_w = 3, .ceil_mode = true};
  expect_gradients([&](auto& in) { return std::vector{max_pool2d(in[0], o)}; },
                   {pattern(kPicture, 4)}, {{0.572265625, 41.5859375, -1.859313964844}},
                   {{0, -2.837890625, 2.525547027588}},
                   {kZero, {-0.205078125, -0.390625, -1.100189208984}});
}

TEST(MaxPool, RefusesWindowsThatReadNothing) {
  const Tensor x = Tensor::zeros({1, 1, 3, 3});
  expect_error([&] { max_pool2d(x, {.pad_h = 2}); },
               {"max_pool: input x: got f32[1,1,3,3]", "at least one pixel"});
  expect_error([&] { max_pool2d(x, {.kernel_h = 4}); }, {"max_pool: input x"});
  // A dilated window can step over the only row: padding, row, padding.
  expect_error(
      [&] {
        apply(max_pool_op, {{Tensor::zeros({1, 1, 1, 3})}},
              MaxPoolParams{.pad_before = {1, 0}, .pad_after = {1, 0}, .dilation = {2, 1}});
      },
      {"max_pool: input x"});
}

TEST(MaxPool, GradientRefusesPlacesOutsideThePicture) {
  const Tensor dy = Tensor::zeros({1, 1, 1, 1});
  for (int32_t place : {-1, 4})
    expect_error(
        [&] {
          apply1(max_pool_grad_op, {dy, Tensor::from<int32_t>({place}, {1, 1, 1, 1})},
                 MaxPoolGradParams{{2, 2}});
        },
        {"max_pool_grad: input indices: got " + std::to_string(place) + ", expected 0 … 3"});
}

struct AvgCase {
  AvgPoolParams params;
  Digest value, gradient, second;
};
class AvgPool : public testing::TestWithParam<AvgCase> {};
TEST_P(AvgPool, FollowsPyTorch) {
  const AvgCase& c = GetParam();
  expect_gradients([&](auto& in) { return apply(avg_pool_op, in, c.params); },
                   {pattern(kPicture, 4)}, {c.value}, {c.gradient}, {kZero, c.second});
}
INSTANTIATE_TEST_SUITE_P(
    All, AvgPool,
    testing::Values(
        AvgCase{{},
                {-0.01513671875, -0.48779296875, -0.4980306625366},
                {-0.24755859375, -2.837890625, 1.266098976135},
                {-0.2998046875, -0.09423828125, 0.2928485870361}},
        AvgCase{{.kernel = {3, 2}, .stride = {2, 1}, .pad_before = {1, 1}, .pad_after = {1, 1}},
                {0.03255208333333, -3.466796875, -0.565097173055},
                {-0.2034505208333, -2.53125, 0.3781973520915},
                {-0.2265625, -2.811197916667, -0.3415762583415}},
        AvgCase{{.kernel = {3, 3}, .pad_before = {1, 1}, .pad_after = {1, 1}, .ceil_mode = true},
                {-0.006727430555556, -1.969292534722, 0.9884815216064},
                {-0.1100260416667, -0.8824869791667, -0.4946513705783},
                {-0.1332465277778, -1.605034722222, -0.1936100853814}},
        AvgCase{{.kernel = {3, 3},
                 .pad_before = {1, 1},
                 .pad_after = {1, 1},
                 .ceil_mode = true,
                 .count_padding = false},
                {-0.01513671875, -2.573784722222, 1.173915439182},
                {-0.24755859375, -2.404296875, -1.052585177951},
                {-0.2998046875, -2.585774739583, -0.2116119596693}}));

TEST(AvgPoolHand, DividesByTheWindow) {
  const Tensor x = Tensor::from<double>({1, 2, 3, 4}, {1, 1, 2, 2});
  EXPECT_EQ(avg_pool2d(x, {}).item(), 2.5);
  const PoolOptions padded{.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
  EXPECT_EQ(avg_pool2d(x, padded).values<double>(), (std::vector<double>{0.25, 0.5, 0.75, 1}));
  PoolOptions exclude = padded;
  exclude.count_padding = false;
  EXPECT_EQ(avg_pool2d(x, exclude).values<double>(), (std::vector<double>{1, 2, 3, 4}));
}

TEST(Pools, OnnxReadsBackWhatItWrites) {
  const TypeList in{{DType::f32, {1, 2, 9, 8}}};
  const Params m = MaxPoolParams{{3, 2}, {2, 1}, {1, 0}, {0, 1}, {1, 2}, true};
  EXPECT_EQ(max_pool_op.onnx.read(max_pool_op.onnx.write(m, in), in), m);
  const Params a = AvgPoolParams{{3, 2}, {2, 1}, {1, 0}, {0, 1}, true, false};
  EXPECT_EQ(avg_pool_op.onnx.read(avg_pool_op.onnx.write(a, in), in), a);
}

TEST(MaxPool, NoWindowMayLieInThePaddingAlone) {
  for (int64_t code = 0; code < 8 * 4 * 3 * 9 * 9 * 4; ++code) {
    int64_t rest = code;
    const auto next = [&](int64_t n) { return std::exchange(rest, rest / n) % n; };
    const WindowAxis w{.length = next(8) + 1, .kernel = next(4) + 1, .stride = next(3) + 1, .before = next(9),
                       .after = next(9), .dilation = next(4) + 1};
    if (w.count() < 1) continue;
    bool all = true;
    for (int64_t i = 0; i < w.count(); ++i) {
      bool any = false;
      for (int64_t tap = 0; tap < w.kernel; ++tap) any = any || w.inside(w.at(i, tap));
      all = all && any;
    }
    ASSERT_EQ(w.all_windows_read(w.count()), all)
        << w.length << " " << w.kernel << " " << w.stride << " " << w.before << " " << w.after << " " << w.dilation;
  }
  const WindowAxis huge{.length = int64_t(1) << 40, .kernel = 3, .stride = 1, .before = 1, .after = 1};
  EXPECT_TRUE(huge.all_windows_read(huge.count())) << "and at once";
}

}  // namespace
}  // namespace cairn::ops
