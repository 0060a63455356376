// SPDX-License-Identifier: Apache-2.0
#include "ops/nn/conv.h"

#include "base/parallel.h"
#include "ops/catalog.h"
#include "ops/testing.h"

namespace cairn::ops {
namespace {

constexpr Digest kZero{0, 0, 0};

Tensor conv(const std::vector<Tensor>& in, const ConvParams& p) { return apply(conv_op, in, p)[0]; }

TEST(Conv, AddsTheProductsUnderTheWindow) {
  const Tensor x = Tensor::from<double>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3});
  const Tensor weight = Tensor::from<double>({1, 0, 0, -1}, {1, 1, 2, 2});
  EXPECT_EQ(conv2d(x, weight).values<double>(), (std::vector<double>{-4, -4, -4, -4}));
  const Tensor bias = Tensor::from<double>({10}, {1});
  EXPECT_EQ(conv2d(x, weight, bias, {.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1})
                .values<double>(),
            (std::vector<double>{9, 7, 3, 6}));
  EXPECT_EQ(conv2d(x, weight, {}, {.dilation_h = 2, .dilation_w = 2}).values<double>(),
            std::vector<double>{-8});
}

TEST(Conv, PadsEachSideByItsOwnAmount) {
  const Tensor x = Tensor::from<double>({1, 2}, {1, 1, 1, 2}),
               weight = Tensor::from<double>({3, 5}, {1, 1, 1, 2});
  EXPECT_EQ(conv({x, weight}, {.pad_before = {0, 2}, .pad_after = {1, 0}}).values<double>(),
            (std::vector<double>{0, 5, 13, 0, 0, 0}));
}

TEST(Conv, GroupsStrideDilationAndBiasFollowPyTorch) {
  const ConvParams p{
      .stride = {2, 1}, .pad_before = {1, 0}, .pad_after = {2, 1}, .dilation = {1, 2}, .groups = 2};
  expect_gradients([&](auto& in) { return std::vector{conv(in, p)}; },
                   {pattern({2, 4, 4, 5}, 1), pattern({6, 2, 3, 2}, 2), pattern({6}, 3)},
                   {{-2.843406677246, -23.05812072754, -10.62835161388}},
                   {{-0.5868110656738, -3.252857208252, -2.730489559472},
                    {-1.222881317139, -0.7699661254883, -10.94333580881},
                    {-2.111328125, -3.818359375, -0.6351776123047}},
                   {{-0.3570518493652, 3.316699981689, -3.053825326264},
                    {-2.002281188965, 7.828029632568, 6.034625321627},
                    kZero,
                    {-3.643516540527, -2.422885894775, -7.955835357308}});
}

TEST(Conv, StrideThatLeavesARestFollowsPyTorch) {
  const ConvParams p{.stride = {2, 2}, .pad_before = {1, 1}, .pad_after = {1, 1}};
  expect_gradients([&](auto& in) { return std::vector{conv(in, p)}; },
                   {pattern({2, 3, 6, 5}, 1), pattern({4, 3, 3, 3}, 2)},
                   {{-1.786407470703, 13.20839309692, 0.3076525628567}},
                   {{-0.4897918701172, -2.448905944824, -3.753608010709},
                    {1.143363952637, 2.476551055908, 7.238921076059}},
                   {{-0.419849395752, -11.81577682495, 0.01142234355211},
                    {-0.8473091125488, -9.107360839844, 11.91866090149},
                    {-0.723014831543, 19.70350265503, -8.888109900057}});
}

TEST(Conv, DepthwiseFollowsPyTorch) {
  const ConvParams p{.pad_before = {1, 1}, .pad_after = {1, 1}, .groups = 4};
  expect_gradients([&](auto& in) { return std::vector{conv(in, p)}; },
                   {pattern({1, 4, 5, 5}, 1), pattern({4, 1, 3, 3}, 2)},
                   {{-0.987190246582, 6.429290771484, 6.380089618266}},
                   {{-0.03479766845703, -3.86051940918, -8.143921725452},
                    {-0.1394348144531, -2.858200073242, 9.984387665987}},
                   {{0.1054496765137, -0.7238235473633, -3.16903693229},
                    {-1.57251739502, 5.809551239014, -1.624506637454},
                    {-0.09596633911133, 18.87954330444, -2.033293351531}});
}

TEST(Conv, GradInputIsTheTransposedConvolutionOfPyTorch) {
  const ConvGradInputParams p{
      {.stride = {2, 2}, .pad_before = {1, 1}, .pad_after = {1, 1}, .groups = 3}, {6, 4}};
  expect_gradients([&](auto& in) { return apply(conv_grad_input_op, in, p); },
                   {pattern({2, 6, 3, 2}, 1), pattern({6, 2, 3, 3}, 2)},
                   {{-0.435359954834, -5.788383483887, -4.245132721961}},
                   {{-0.7261352539062, -4.006217956543, 2.403790943325},
                    {0.6242599487305, 5.517921447754, -8.710748851299}},
                   {{-0.6170539855957, -0.5806541442871, 3.649302504957},
                    {-1.245132446289, 3.312355041504, -3.526158593595},
                    {-0.8370170593262, -0.7933349609375, 12.25982675701}});
}

TEST(Conv, ReferenceGivesTheSameBitsForAnyNumberOfThreads) {
  const ConvParams p{.pad_before = {1, 1}, .pad_after = {1, 1}, .groups = 2};
  const Tensor x = pattern({3, 6, 7, 5}, 1) / 3, weight = pattern({4, 3, 3, 3}, 2) / 7;
  const auto all = [&] {
    const Tensor y = conv({x, weight}, p);
    auto bits = y.values<double>();
    for (const Tensor& t : {apply1(conv_grad_input_op, {y, weight}, ConvGradInputParams{p, {7, 5}}),
                            apply1(conv_grad_weight_op, {x, y}, ConvGradWeightParams{p, {3, 3}})})
      for (double v : t.values<double>()) bits.push_back(v);
    return bits;
  };
  const int before = thread_count();
  set_thread_count(1);
  const auto one = all();
  set_thread_count(3);
  const auto three = all();
  set_thread_count(before);
  EXPECT_EQ(one, three);
}

TEST(Conv, ErrorsNameArgumentGotAndExpected) {
  const Tensor x = Tensor::zeros({1, 4, 5, 5}), weight = Tensor::zeros({6, 4, 3, 3});
  expect_error(
      [&] {
        conv2d(Tensor::zeros({4, 5, 5}), weight);
      },
      {"conv: input x: got f32[4,5,5], expected four axes", "conv_test.cpp:"});
  expect_error(
      [&] {
        conv2d(x, Tensor::zeros({6, 3, 3, 3}));
      },
      {"input weight: got f32[6,3,3,3]", "4 channels in 1 groups"});
  expect_error([&] { conv2d(x, weight, Tensor::zeros({5})); },
               {"input bias: got f32[5], expected [6]"});
  expect_error(
      [&] {
        conv2d(x, Tensor::zeros({6, 2, 3, 3}), {}, {.groups = 3});
      },
      {"input weight", "in 3 groups"});
  expect_error(
      [&] {
        conv2d(x, Tensor::zeros({5, 2, 3, 3}), {}, {.groups = 2});
      },
      {"input weight", "into 2 groups"});
  expect_error([&] { conv2d(x, weight, {}, {.stride_h = 0}); }, {"parameter stride: got [0,1]"});
  expect_error([&] { conv2d(x, weight, {}, {.pad_w = -1}); }, {"parameter pad_before: got [0,-1]"});
  expect_error([&] { conv2d(x, weight, {}, {.dilation_h = 3}); },
               {"input x", "at least 7 × 3 pixels"});
  expect_error(
      [&] {
        conv2d(x, Tensor::zeros({6, 4, 3, 3}, DType::f64));
      },
      {"input weight: got f64", "f32"});
  expect_error(
      [&] {
        apply1(conv_grad_input_op, {Tensor::zeros({1, 6, 3, 3}), weight},
               ConvGradInputParams{{}, {6, 5}});
      },
      {"conv_grad_input: input dy: got f32[1,6,3,3], expected [1,6,4,3]"});
}

TEST(Conv, OnnxReadsBackWhatItWrites) {
  const TypeList in{{DType::f32, {1, 4, 7, 8}}, {DType::f32, {6, 2, 3, 2}}};
  const Params p = ConvParams{
      .stride = {2, 1}, .pad_before = {0, 1}, .pad_after = {2, 1}, .dilation = {1, 2}, .groups = 2};
  const auto back = conv_op.onnx.read(conv_op.onnx.write(p, in), in);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, p);
}

TEST(Conv, OnnxAutoPadBecomesPads) {
  const TypeList in{{DType::f32, {1, 1, 6, 7}}, {DType::f32, {1, 1, 3, 2}}};
  const OnnxCall call{{{"auto_pad", "SAME_UPPER"}, {"strides", std::vector<int64_t>{2, 1}}}, {}};
  const auto p = conv_op.onnx.read(call, in);
  ASSERT_TRUE(p);
  EXPECT_EQ(*p, Params(ConvParams{.stride = {2, 1}, .pad_before = {0, 0}, .pad_after = {1, 1}}));
}

TEST(Conv, OnnxConvTransposeGivesTheSize) {
  const TypeList in{{DType::f32, {2, 6, 3, 2}}, {DType::f32, {6, 2, 3, 3}}};
  const OnnxCall call{{{"strides", std::vector<int64_t>{2, 2}},
                       {"pads", std::vector<int64_t>{1, 1, 1, 1}},
                       {"output_padding", std::vector<int64_t>{1, 1}},
                       {"group", int64_t(3)}},
                      {}};
  const auto p = conv_grad_input_op.onnx.read(call, in);
  ASSERT_TRUE(p);
  EXPECT_EQ(conv_grad_input_op.infer(*p, in)[0].shape, (Shape{2, 6, 6, 4}));
  const auto back = conv_grad_input_op.onnx.read(conv_grad_input_op.onnx.write(*p, in), in);
  EXPECT_EQ(*back, *p);
}

TEST(Conv, CostCountsMultiplyAndAddAsTwo) {
  const TypeList in{{DType::f32, {2, 3, 8, 8}}, {DType::f32, {4, 3, 3, 3}}};
  const Params p = ConvParams{.pad_before = {1, 1}, .pad_after = {1, 1}};
  const TypeList out = conv_op.infer(p, in);
  EXPECT_EQ(conv_op.cost(p, in, out).flops, 2.0 * 2 * 4 * 64 * 27);
  EXPECT_EQ(conv_op.cost(p, in, out).bytes, 4.0 * (2 * 3 * 64 + 4 * 27 + 2 * 4 * 64));
}

}  // namespace
}  // namespace cairn::ops
