// SPDX-License-Identifier: Apache-2.0
#include "ops/image/resize.h"

#include "ops/catalog.h"
#include "ops/testing.h"

namespace cairn::ops {
namespace {

TEST(Resize, BilinearWeighsByDistanceBetweenCentres) {
  const Tensor x = Tensor::from<double>({0, 4}, {1, 1, 1, 2});
  EXPECT_EQ(resize2d(x, 1, 4).values<double>(), (std::vector<double>{0, 1, 3, 4}));
}

TEST(Resize, NearestTakesTheFloor) {
  const Tensor x = Tensor::from<double>({1, 2, 3}, {1, 1, 1, 3});
  EXPECT_EQ(resize2d(x, 1, 5, ResizeMode::nearest).values<double>(),
            (std::vector<double>{1, 1, 2, 2, 3}));
  EXPECT_EQ(resize2d(x, 2, 2, ResizeMode::nearest).values<double>(),
            (std::vector<double>{1, 2, 1, 2}));
}

struct Case {
  int64_t height, width;
  ResizeMode mode;
  Digest value, gradient;
};
class ResizeCase : public testing::TestWithParam<Case> {};
TEST_P(ResizeCase, FollowsPyTorch) {
  const Case& c = GetParam();
  expect_gradients(
      [&](auto& in) { return std::vector{resize2d(in[0], c.height, c.width, c.mode)}; },
      {pattern({2, 2, 5, 7}, 9)}, {c.value}, {c.gradient});
}
constexpr auto bilinear = ResizeMode::bilinear, nearest = ResizeMode::nearest;
INSTANTIATE_TEST_SUITE_P(All, ResizeCase,
                         testing::Values(Case{10,
                                              14,
                                              bilinear,
                                              {0.775390625, -5.5703125, -1.000069618225},
                                              {-0.9656982421875, -12.2109375, 0.8401892185211}},
                                         Case{10,
                                              14,
                                              nearest,
                                              {0.775390625, -5.5703125, -2.082443237305},
                                              {-0.875, -12.2109375, -0.9419860839844}},
                                         Case{3,
                                              4,
                                              bilinear,
                                              {0.3697102864583, -0.9560546875, -3.064888477325},
                                              {-0.41259765625, -2.4453125, -1.992431322734}},
                                         Case{3,
                                              4,
                                              nearest,
                                              {0.775390625, 1.53125, 1.593971252441},
                                              {-0.990234375, -2.4453125, -5.595767974854}},
                                         Case{7,
                                              5,
                                              bilinear,
                                              {0.533203125, -1.336272321429, -0.8684799194336},
                                              {-0.5049107142857, -4.212890625, -2.869921330043}},
                                         Case{7,
                                              5,
                                              nearest,
                                              {0.775390625, -0.078125, 5.050212860107},
                                              {-0.15234375, -4.212890625, 0.6314125061035}},
                                         Case{1,
                                              1,
                                              bilinear,
                                              {-0.103515625, 1.48046875, -0.1498489379883},
                                              {0, -1.373046875, -0.2182312011719}},
                                         Case{1,
                                              1,
                                              nearest,
                                              {0.775390625, 1.0546875, 0.2708053588867},
                                              {-0.990234375, -1.373046875, 0.372486114502}}));

TEST(Resize, OnnxScalesGiveBackTheSizeForAnyLengths) {
  for (int64_t from : {1, 3, 5, 7, 29, 224})
    for (int64_t to = 1; to < 300; ++to) {
      const TypeList in{{DType::f32, {2, 3, from, from}}};
      const Params p = ResizeParams{{to, from}, "bilinear"};
      const OnnxCall call = resize2d_op.onnx.write(p, in);
      EXPECT_EQ(resize2d_op.onnx.read(call, in), p);
      const float scale = call.constant(2)->values<float>()[2];
      EXPECT_EQ(int64_t(scale * float(from)), to);  // as others may compute it
    }
}

TEST(Resize, OnnxSizesAndOtherRoundingsAreRead) {
  const TypeList in{{DType::f32, {1, 2, 3, 4}}};
  const auto call = [](std::string mode, std::string centres, std::string rounding,
                       std::vector<int64_t> sizes) {
    return OnnxCall{
        {{"mode", mode}, {"coordinate_transformation_mode", centres}, {"nearest_mode", rounding}},
        {{3, Tensor::from(sizes, {4})}}};
  };
  const Params doubled = ResizeParams{{6, 8}, "nearest"};
  EXPECT_EQ(resize2d_op.onnx.read(call("nearest", "asymmetric", "floor", {1, 2, 6, 8}), in),
            doubled);
  EXPECT_EQ(
      resize2d_op.onnx.read(call("nearest", "half_pixel", "round_prefer_floor", {1, 2, 6, 8}), in),
      doubled);
  EXPECT_FALSE(
      resize2d_op.onnx.read(call("nearest", "half_pixel", "round_prefer_floor", {1, 2, 5, 8}), in));
  EXPECT_FALSE(resize2d_op.onnx.read(call("nearest", "asymmetric", "ceil", {1, 2, 6, 8}), in));
  EXPECT_TRUE(
      resize2d_op.onnx.read(call("linear", "pytorch_half_pixel", "floor", {1, 2, 5, 8}), in));
  EXPECT_FALSE(resize2d_op.onnx.read(call("linear", "align_corners", "floor", {1, 2, 5, 8}), in));
  EXPECT_FALSE(
      resize2d_op.onnx.read(call("linear", "half_pixel", "floor", {1, 4, 5, 8}), in));  // channels
  EXPECT_FALSE(resize2d_op.onnx.read(OnnxCall{}, in));  // no constant size
}

TEST(Resize, ErrorsNameArgumentGotAndExpected) {
  expect_error(
      [] {
        resize2d(Tensor::zeros({2, 3}), 4, 4);
      },
      {"resize2d: input x: got f32[2,3], expected four axes"});
  expect_error([] { resize2d(Tensor::zeros({1, 1, 2, 3}), 0, 4); }, {"parameter size: got [0,4]"});
  expect_error([] { resize2d(Tensor::zeros({1, 1, 0, 3}), 4, 4); }, {"input x: got f32[1,1,0,3]"});
}

}  // namespace
}  // namespace cairn::ops
