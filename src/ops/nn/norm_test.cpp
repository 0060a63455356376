// SPDX-License-Identifier: Apache-2.0
#include "ops/nn/norm.h"

#include "ops/catalog.h"
#include "ops/testing.h"

namespace cairn::ops {
namespace {

constexpr Digest kZero{0, 0, 0};
const Shape kBatch{3, 4, 2, 3};

TEST(BatchNorm, GivesEachChannelMeanBetaAndDeviationGamma) {
  const Tensor x = Tensor::from<double>({1, 10, 3, 20}, {2, 2});
  const auto r =
      batch_norm_train(x, Tensor::from<double>({1, 2}, {2}), Tensor::from<double>({0, 5}, {2}), 0);
  EXPECT_EQ(r.y.values<double>(), (std::vector<double>{-1, 3, 1, 7}));
  EXPECT_EQ(r.mean.values<double>(), (std::vector<double>{2, 15}));
  EXPECT_EQ(r.variance.values<double>(), (std::vector<double>{1, 25}));
}

TEST(BatchNorm, TrainingFollowsPyTorch) {
  expect_gradients(
      [](auto& in) { return std::vector{batch_norm_train(in[0], in[1], in[2], 1e-3).y}; },
      {pattern(kBatch, 1), pattern({4}, 2), pattern({4}, 3)},
      {{0.3994357783316, -18.28125, -3.133219380602}},
      {{0.3672643704426, 0, -0.6580186510234},
       {7.034114857821, 19.53537555164, 0.7884155914307},
       {-2.259765625, -1.50390625, -0.5233154296875}},
      {{-0.4656346216297, 0, 0.2629745829002},
       {5.532461931518, 29.181036391, 2.096878392497},
       kZero,
       {0.8286555183435, 3.83203125, 2.61320235784}});
}

TEST(BatchNorm, StatisticsHaveGradientsToo) {
  expect_gradients(
      [](auto& in) {
        const auto r = batch_norm_train(in[0], in[1], in[2], 1e-3);
        return std::vector{r.y, r.mean, r.variance};
      },
      {pattern(kBatch, 1), pattern({4}, 2), pattern({4}, 3)},
      {{0.3994357783316, -18.28125, -3.133219380602},
       {-0.04752604166667, -0.09993489583333, -0.07612800598145},
       {0.3195402357313, 1.289458557411, 0.08824475213057}},
      {{0.3731972136862, -0.583984375, -0.6822835555213},
       {7.034114857821, 19.53537555164, 0.7884155914307},
       {-2.259765625, -1.50390625, -0.5233154296875}},
      {{-0.4084013292502, 0, 0.1415068335305},
       {5.532461931518, 29.181036391, 2.096878392497},
       kZero,
       {0.8286555183435, 3.83203125, 2.61320235784},
       {-0.1235894097222, -0.07573784722222, -0.02863438924154},
       {0.4424948515715, 1.238314381352, 0.05410076889359}});
}

TEST(BatchNorm, InferenceFollowsPyTorch) {
  expect_gradients(
      [](auto& in) {
        return std::vector{batch_norm_infer(in[0], in[1], in[2], in[3], in[4], 1e-3)};
      },
      {pattern(kBatch, 1), pattern({4}, 2), pattern({4}, 3), pattern({4}, 5),
       positive_pattern({4}, 6)},
      {{0.05872588927588, -10.337724363, -2.205559498778}},
      {{0.5859727976185, -0.5763710042572, -1.201511514849},
       {3.966998929966, 9.093661003765, 0.7971628491282},
       {-2.259765625, -1.50390625, -0.5233154296875},
       {-1.337219974052, 0.5763710042572, -0.2132715935087},
       {1.147147515624, -0.583509988293, 0.6521787635471}},
      {{0.8212987327509, -0.710313058861, -0.8480523194826},
       {5.522596910253, 21.59398497094, 2.450116419735},
       kZero,
       {-1.874245826021, 0.710313058861, -0.4239105863903},
       {3.313972170401, -1.558632936792, 2.407462065376},
       {0.4108938771396, 24.91989482876, 1.63654184872}});
}

TEST(BatchNorm, DecompositionsMeanTheSame) {
  const std::vector<Tensor> in{pattern(kBatch, 1), pattern({4}, 2), pattern({4}, 3),
                               pattern({4}, 5), positive_pattern({4}, 6)};
  const Params p = NormParams{1e-3};
  expect_digest("infer", batch_norm_infer_op.decompose(p, in)[0],
                digest(apply(batch_norm_infer_op, in, p)[0]));
  const std::vector<Tensor> grad_in{pattern(kBatch, 9), in[0], in[1], in[3], in[4]};
  const auto whole = apply(batch_norm_grad_op, grad_in, p),
             parts = batch_norm_grad_op.decompose(p, grad_in);
  for (size_t i = 0; i < whole.size(); ++i) expect_digest("grad", parts[i], digest(whole[i]));
}

TEST(BatchNorm, AnEmptyBatchHasNoNans) {
  const auto r =
      batch_norm_train(Tensor::zeros({0, 2, 3, 3}), Tensor::ones({2}), Tensor::zeros({2}));
  EXPECT_EQ(r.mean.values<float>(), std::vector<float>(2, 0));
  EXPECT_EQ(r.variance.values<float>(), std::vector<float>(2, 0));
}

TEST(BatchNorm, HalfPrecisionKeepsItsStatisticsInF32) {
  const Tensor x = cast(pattern(kBatch, 1), DType::bf16), ones = Tensor::ones({4}),
               zeros = Tensor::zeros({4});
  const auto r = batch_norm_train(x, ones, zeros);
  EXPECT_EQ(r.y.dtype(), DType::bf16);
  EXPECT_EQ(r.mean.dtype(), DType::f32);
  Tape tape;
  tape.watch(x);
  tape.watch(ones);
  const auto again = batch_norm_train(x, ones, zeros);
  const Tensor loss =
      sum(cast(again.y, DType::f32) * pattern(kBatch, 2, DType::f32)) + sum(again.variance);
  const auto g = tape.gradient(loss, std::vector{x, ones});
  EXPECT_EQ(g[0].dtype(), DType::bf16);
  EXPECT_EQ(g[1].dtype(), DType::f32);
  expect_error([&] { batch_norm_train(pattern(kBatch, 1), ones, zeros); },
               {"input gamma: got f32[4], expected f64"});
}

TEST(BatchNorm, ErrorsNameArgumentGotAndExpected) {
  const Tensor x = Tensor::zeros(kBatch), four = Tensor::zeros({4}), three = Tensor::zeros({3});
  expect_error([&] { batch_norm_train(four, four, four); },
               {"batch_norm_train: input x: got f32[4], expected at least two axes"});
  expect_error([&] { batch_norm_train(x, three, four); },
               {"input gamma: got f32[3], expected [4] as x has 4 channels"});
  expect_error([&] { batch_norm_infer(x, four, four, four, three); },
               {"batch_norm_infer: input variance: got f32[3]"});
}

TEST(LayerNorm, GivesEachRowMeanZeroAndDeviationOne) {
  const Tensor x = Tensor::from<double>({1, 3, 10, 20}, {2, 2});
  const Tensor weight = Tensor::from<double>({1, 2}, {2}), bias = Tensor::from<double>({0, 5}, {2});
  EXPECT_EQ(layer_norm(x, weight, bias, 0).values<double>(), (std::vector<double>{-1, 7, -1, 7}));
}

TEST(LayerNorm, FollowsPyTorch) {
  expect_gradients([](auto& in) { return std::vector{layer_norm(in[0], in[1], in[2], 1e-3)}; },
                   {pattern({2, 3, 4, 2}, 1), pattern({4, 2}, 2), pattern({4, 2}, 3)},
                   {{0.3179793732138, 9.131012220424, -4.511522967464}},
                   {{1.132670385805, 0, 2.296418827681},
                    {2.945321248642, 15.40850350394, -1.405272916757},
                    {-3.451171875, -2.4453125, -5.882411956787}},
                   {{0.7320975459579, 0, 2.506168345895},
                    {2.152697318363, 16.4458728043, -0.527286319813},
                    kZero,
                    {1.068171246087, 17.91449248047, 2.750364336036}});
}

TEST(LayerNorm, GradientDecomposesForOneRowToo) {
  const Params p = NormParams{1e-3};
  for (const Shape& shape : {Shape{3, 4, 2}, Shape{4, 2}}) {
    const std::vector<Tensor> in{pattern(shape, 9), pattern(shape, 1), pattern({4, 2}, 2)};
    const auto whole = apply(layer_norm_grad_op, in, p),
               parts = layer_norm_grad_op.decompose(p, in);
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(parts[i].type(), whole[i].type());
      expect_digest("part " + std::to_string(i), parts[i], digest(whole[i]));
    }
  }
}

TEST(LayerNorm, TheBiasMayBeLeftOut) {
  const Tensor x = pattern({3, 7}, 1), weight = pattern({7}, 2);
  const Tensor y = apply1(layer_norm_op, {x, weight}, NormParams{});
  EXPECT_EQ(y.values<double>(),
            layer_norm(x, weight, Tensor::zeros({7}, DType::f64)).values<double>());
  Tape tape;
  tape.watch(weight);
  const Tensor z = apply1(layer_norm_op, {x, weight}, NormParams{});
  EXPECT_EQ(tape.gradient(sum(z), std::vector{weight})[0].shape(), (Shape{7}));
}

TEST(LayerNorm, ErrorsNameArgumentGotAndExpected) {
  const Tensor x = Tensor::zeros({2, 3, 4}), w = Tensor::zeros({4});
  expect_error([&] { layer_norm(x, Tensor::zeros({3}), w); },
               {"layer_norm: input weight: got f32[3], expected the last axes of x f32[2,3,4]"});
  expect_error([&] { layer_norm(x, w, Tensor::zeros({3})); },
               {"input bias: got f32[3], expected [4] as the weight"});
}

TEST(Norms, OnnxReadsBackWhatItWrites) {
  const TypeList in{{DType::f32, {2, 3, 4, 2}}, {DType::f32, {4, 2}}};
  const Params p = NormParams{1e-3};
  EXPECT_EQ(layer_norm_op.onnx.read(layer_norm_op.onnx.write(p, in), in), p);
  EXPECT_EQ(batch_norm_infer_op.onnx.read(batch_norm_infer_op.onnx.write(p, in), in), p);
  EXPECT_FALSE(batch_norm_infer_op.onnx.read({{{"training_mode", int64_t(1)}}, {}}, in));
  EXPECT_FALSE(
      layer_norm_op.onnx.read({{{"axis", int64_t(-1)}}, {}}, in));  // the weight has two axes
}

}  // namespace
}  // namespace cairn::ops
