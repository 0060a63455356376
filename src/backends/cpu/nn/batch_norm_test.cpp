// SPDX-License-Identifier: Apache-2.0
#include <cairn/ops.h>

#include "backends/cpu/simd_test.h"
#include "ops/catalog.h"
#include "ops/fused/norm_act.h"
#include "ops/nn/norm.h"

namespace cairn::cpu {
namespace {

constexpr std::string_view kName = "cpu.planes";
const std::vector<Shape> kShapes{{2, 16, 7, 7}, {3, 8, 5, 9},   {1, 24, 1, 1},
                                 {5, 3, 4, 6},  {4, 12, 6, 3},  {2, 32, 17},
                                 {9, 5},        {1, 1, 50, 41}, {0, 3, 2, 2}};

struct Case {
  const OpDef* op;
  Params params;
  std::vector<Dense> in;
  size_t x;  // input
};
std::vector<Case> cases(const Shape& shape) {
  const TensorType picture{DType::f32, shape}, channel{DType::f32, {shape[1]}};
  uint64_t seed = 1;
  const auto pictures = [&] { return random_dense(picture, ++seed); };
  const auto channels = [&](double low = -2, double high = 2) {
    return random_dense(channel, ++seed, low, high);
  };
  std::vector<Case> out;
  out.push_back(
      {&ops::batch_norm_train_op, ops::NormParams{1e-4}, {pictures(), channels(), channels()}, 0});
  out.push_back({&ops::batch_norm_grad_op,
                 ops::NormParams{},
                 {pictures(), pictures(), channels(), channels(-1, 1), channels(0.2)},
                 1});
  out.push_back({&ops::batch_norm_infer_op,
                 ops::NormParams{1e-3},
                 {pictures(), channels(), channels(), channels(), channels(0.1)},
                 0});
  for (const char* act : {"none", "relu"})
    for (const bool residual : {false, true}) {
      const ops::NormActParams p{1e-5, act, residual};
      Case train{&ops::batch_norm_act_train_op, p, {pictures(), channels(), channels()}, 0};
      if (residual) train.in.push_back(pictures());
      out.push_back(train);
      out.push_back(
          {&ops::batch_norm_act_grad_op,
           p,
           {pictures(), pictures(), pictures(), channels(), channels(-1, 1), channels(0.2)},
           2});
    }
  const ops::NormActParams silu{1e-5, "silu", false};
  out.push_back({&ops::batch_norm_act_train_op, silu, {pictures(), channels(), channels()}, 0});
  const Dense x = pictures();
  out.push_back({&ops::batch_norm_act_grad_op,
                 silu,
                 {pictures(), x, x, channels(), channels(-1, 1), channels(0.2), channels()},
                 2});
  return out;
}
std::vector<std::optional<Layout>> picture_layouts(const Case& c, const Layout& layout) {
  std::vector<std::optional<Layout>> out;
  for (const Dense& d : c.in)
    out.push_back(d.type.shape == c.in[c.x].type.shape ? layout : Layout());
  return out;
}
Ran run(const Case& c, const How& how = {}) {
  return run_on(kernel_named(*c.op, kName), *c.op, c.params, c.in, how);
}

TEST(BatchNorm, EveryFormAgreesWithItsReferenceInEveryLayout) {
  for_each_target([&](const char*) {
    for (const Shape& shape : kShapes)
      for (const Case& c : cases(shape)) {
        SCOPED_TRACE(c.op->name + c.params.to_string() + to_string(shape));
        const auto want = run_reference_on(*c.op, c.params, c.in);
        std::vector<std::string> tags{"abcd"};
        if (shape.rank() == 4) tags = {"abcd", "aBcd8b", "aBcd16b", "aBcd4b"};
        for (const std::string& tag : tags)
          for (const bool in_place : {false, true}) {
            SCOPED_TRACE(tag);
            const Layout layout = shape.rank() == 4 ? Layout::parse(tag) : Layout();
            const Ran ran = run(c, {.layouts = picture_layouts(c, layout), .in_place = in_place});
            ASSERT_EQ(ran.refusal, "");
            EXPECT_EQ(ran.offer.out[0], layout);
            expect_close(ran.out, want, 1e-5, 1e-5);
          }
      }
  });
}

TEST(BatchNorm, BitsDoNotDependOnThreads) {
  for (const Shape& shape : kShapes)
    for (const Case& c : cases(shape)) {
      SCOPED_TRACE(c.op->name + c.params.to_string() + to_string(shape));
      const auto layouts =
          picture_layouts(c, shape.rank() == 4 ? Layout::parse("aBcd8b") : Layout());
      const Ran one = run(c, {.layouts = layouts, .threads = 1, .deterministic = true});
      for (int threads : {2, 3, 5})
        EXPECT_TRUE(same_bits(
            one.out, run(c, {.layouts = layouts, .threads = threads, .deterministic = true}).out))
            << threads;
    }
}

TEST(BatchNorm, JoiningChangesNoBits) {
  const Shape shape{2, 16, 5, 7};
  const TensorType picture{DType::f32, shape}, channel{DType::f32, {16}};
  const std::vector<Dense> in{random_dense(picture, 1), random_dense(channel, 2),
                              random_dense(channel, 3), random_dense(picture, 4)};
  const auto joined =
      run_on(kernel_named(ops::batch_norm_act_train_op, kName), ops::batch_norm_act_train_op,
             ops::NormActParams{1e-5, "relu", true}, in)
          .out;
  const auto norm = run_on(kernel_named(ops::batch_norm_train_op, kName), ops::batch_norm_train_op,
                           ops::NormParams{1e-5}, {in[0], in[1], in[2]})
                        .out;
  const auto sum = run_on(kernel_named(ops::add_op, "cpu"), ops::add_op, {}, {norm[0], in[3]}).out;
  const auto y = run_on(kernel_named(ops::relu_op, "cpu"), ops::relu_op, {}, sum).out;
  EXPECT_TRUE(same_bits({joined[0]}, y));
  EXPECT_TRUE(same_bits({joined[1], joined[2]}, {norm[1], norm[2]}));

  const Dense dy = random_dense(picture, 5);
  const auto joined_grad =
      run_on(kernel_named(ops::batch_norm_act_grad_op, kName), ops::batch_norm_act_grad_op,
             ops::NormActParams{1e-5, "relu", true}, {dy, y[0], in[0], in[1], norm[1], norm[2]})
          .out;
  const auto masked =
      run_on(kernel_named(ops::relu_grad_op, "cpu"), ops::relu_grad_op, {}, {dy, y[0]}).out;
  const auto grad = run_on(kernel_named(ops::batch_norm_grad_op, kName), ops::batch_norm_grad_op,
                           ops::NormParams{1e-5}, {masked[0], in[0], in[1], norm[1], norm[2]})
                        .out;
  EXPECT_TRUE(same_bits(joined_grad, {grad[0], grad[1], grad[2], masked[0]}));
}

TEST(BatchNorm, StatisticsStayAccurateForLargeMapsFarFromZero) {
  const Shape shape{2, 8, 112, 112};
  Dense x = random_dense({DType::f32, shape}, 1);
  for (int64_t k = 0; k < x.type.numel(); ++k) x.set(k, x.at(k) * 0.01 + 300);  // mean ≫ deviation
  const Dense gamma = random_dense({DType::f32, {8}}, 2), beta = random_dense({DType::f32, {8}}, 3);
  const Case c{&ops::batch_norm_train_op, ops::NormParams{}, {x, gamma, beta}, 0};
  const auto want = run_reference_on(*c.op, c.params, c.in);
  for_each_target([&](const char*) {
    for (const char* tag : {"abcd", "aBcd8b"}) {
      const auto got = run(c, {.layouts = picture_layouts(c, Layout::parse(tag))}).out;
      expect_close({got[1], got[2]}, {want[1], want[2]}, 1e-6, 0);
      expect_close({got[0]}, {want[0]}, 1e-5, 2e-6);
    }
  });
}

TEST(BatchNorm, RefusesOtherDtypesAndAsksForALayoutItKnows) {
  const TensorType picture{DType::f64, {2, 8, 3, 3}}, channel{DType::f64, {8}};
  const Case c{&ops::batch_norm_train_op,
               ops::NormParams{},
               {random_dense(picture, 1), random_dense(channel, 2), random_dense(channel, 3)},
               0};
  EXPECT_EQ(run(c).refusal, "takes f32 only, got f64");
  const Case single = cases({2, 8, 3, 3})[0];
  const Ran ran = run(single, {.layouts = picture_layouts(single, Layout::parse("acdb"))});
  EXPECT_TRUE(ran.offer.in[0].is_dense());
  const Ran open = run(single, {.layouts = {std::nullopt, std::nullopt, std::nullopt}});
  EXPECT_TRUE(open.offer.in[0].is_dense());
}

}  // namespace
}  // namespace cairn::cpu
