// SPDX-License-Identifier: Apache-2.0
// Convolution kernels against the reference: every form, odd sizes, threads, bits.
#include <fmt/format.h>

#include "backends/cpu/isa.h"
#include "backends/cpu/kernel_test.h"
#include "ops/catalog.h"
#include "ops/fused/conv.h"

namespace cairn::cpu {
namespace {

struct Conv {
  int64_t n, c, h, w, k, r, s;
  ops::ConvParams p = {};

  Shape x() const { return {n, c, h, w}; }
  Shape weight() const { return {k, c / p.groups, r, s}; }
  Shape y() const {
    const TypeList in{{DType::f32, x()}, {DType::f32, weight()}};
    return conv_sizes(p, in).output();
  }
  Call forward() const { return {&ops::conv_op, p, {{DType::f32, x()}, {DType::f32, weight()}}}; }
  Call with_bias() const {
    Call call = forward();
    call.in.push_back({DType::f32, {k}});
    return call;
  }
  Call input_gradient() const {
    return {&ops::conv_grad_input_op,
            ops::ConvGradInputParams{p, {h, w}},
            {{DType::f32, y()}, {DType::f32, weight()}}};
  }
  Call weight_gradient() const {
    return {&ops::conv_grad_weight_op,
            ops::ConvGradWeightParams{p, {r, s}},
            {{DType::f32, x()}, {DType::f32, y()}}};
  }
  std::vector<Call> all() const {
    return {forward(), with_bias(), input_gradient(), weight_gradient()};
  }
};

ops::ConvParams pad(int64_t padding, int64_t stride = 1, int64_t groups = 1) {
  return {.stride = {stride, stride},
          .pad_before = {padding, padding},
          .pad_after = {padding, padding},
          .groups = groups};
}

std::string describe(const Call& call) {
  std::string text = call.op->name + call.params.to_string();
  for (const TensorType& t : call.in) text += " " + to_string(t);
  return text;
}

const std::vector<Conv>& cases() {
  static const std::vector<Conv> list{
      // blocked
      {2, 16, 9, 11, 32, 1, 1},
      {3, 32, 10, 10, 16, 3, 3, pad(1)},
      {2, 16, 8, 8, 16, 3, 3, pad(1, 2)},
      {2, 16, 7, 9, 32, 1, 1, pad(0, 2)},
      {1, 8, 6, 6, 24, 5, 3, {.stride = {2, 1}, .pad_before = {2, 0}, .pad_after = {1, 3}}},
      {2, 8, 12, 9, 8, 3, 3, {.pad_before = {2, 3}, .pad_after = {2, 3}, .dilation = {2, 3}}},
      {2, 32, 6, 5, 32, 3, 3, pad(1, 1, 2)},
      {1, 32, 6, 5, 64, 1, 1, pad(0, 1, 4)},
      {1, 48, 1, 1, 16, 1, 1},
      {1, 16, 2, 2, 16, 3, 3, pad(1)},
      {17, 16, 3, 3, 16, 3, 3, pad(1)},
      {2, 64, 14, 14, 64, 1, 1},
      // first
      {2, 3, 17, 16, 16, 7, 7, pad(3, 2)},
      {2, 1, 12, 12, 8, 3, 3, pad(1)},
      {1, 4, 9, 9, 16, 3, 3, {.pad_before = {0, 1}, .pad_after = {1, 0}}},
      {3, 2, 5, 5, 8, 1, 1},
      // depthwise
      {2, 16, 9, 9, 16, 3, 3, pad(1, 1, 16)},
      {2, 24, 9, 8, 24, 3, 3, pad(1, 2, 24)},
      {1, 16, 9, 9, 16, 5, 5, pad(2, 1, 16)},
      {2,
       8,
       10,
       10,
       8,
       3,
       3,
       {.pad_before = {2, 2}, .pad_after = {2, 2}, .dilation = {2, 2}, .groups = 8}},
      // dense
      {2, 5, 7, 7, 3, 3, 3, pad(1)},
      {2, 12, 7, 6, 10, 3, 3, pad(1, 2)},
      {1, 12, 6, 6, 24, 3, 3, pad(1, 1, 3)},
      {2, 6, 6, 6, 12, 3, 3, pad(1, 1, 6)},
      {2, 32, 6, 6, 32, 3, 3, pad(1, 1, 8)},
      {1, 7, 1, 1, 10, 1, 1},
      {2, 1, 5, 5, 1, 2, 2},
      {19, 3, 4, 4, 5, 3, 3, pad(1)},
  };
  return list;
}

TEST(Conv, EqualsTheReferenceInAllDirections) {
  for (const Conv& conv : cases())
    for (const Call& call : conv.all())
      for (const Options& options : {Options{1}, Options{2}, Options{2, true}}) {
        SCOPED_TRACE(fmt::format("{}, {} threads, deterministic {}", describe(call),
                                 options.threads, options.deterministic));
        const auto inputs = inputs_of(call);
        const Outcome got = run_kernel("onednn.conv", call, inputs, options);
        ASSERT_EQ(got.refusal, "");
        expect_near(got.out[0], run_reference(call, inputs)[0], 1e-5);
      }
}

TEST(Conv, GivesTheSameBitsTwice) {
  for (const Conv& conv : cases())
    for (const Call& call : conv.all()) {
      const auto inputs = inputs_of(call);
      EXPECT_EQ(run_kernel("onednn.conv", call, inputs, {2}).out,
                run_kernel("onednn.conv", call, inputs, {2}).out)
          << describe(call);
    }
}

TEST(Conv, DeterministicGivesTheSameBitsForAnyNumberOfThreads) {
  std::vector<Conv> list = cases();
  list.push_back({4, 64, 28, 28, 64, 1, 1});
  list.push_back({2, 64, 28, 28, 64, 3, 3, pad(1)});
  list.push_back({2, 128, 14, 14, 256, 1, 1, pad(0, 2)});
  list.push_back({2, 100, 14, 14, 100, 3, 3, pad(1)});
  for (const Conv& conv : list)
    for (const Call& call : conv.all()) {
      const auto inputs = inputs_of(call);
      const auto one = run_kernel("onednn.conv", call, inputs, {1, true}).out;
      for (const int threads : {2, 3, 7})
        EXPECT_EQ(run_kernel("onednn.conv", call, inputs, {threads, true}).out, one)
            << describe(call) << " with " << threads << " threads";
    }
}

TEST(Conv, KeepsPicturesBlockedWhereChannelsDivide) {
  const auto tags = [](const Call& call) {
    const Outcome o = run_kernel("onednn.conv", call, inputs_of(call));
    return fmt::format("{} {} -> {}", o.offer.in[0].tag(4), o.offer.in[1].tag(4),
                       o.offer.out[0].tag(4));
  };
  const bool wide = isa() == Isa::avx512;
  const Conv blocked{1, 32, 6, 6, 16, 3, 3, pad(1)}, first{1, 3, 9, 9, 32, 3, 3},
      deep{1, 32, 6, 6, 32, 3, 3, pad(1, 1, 32)}, odd{1, 12, 6, 6, 16, 3, 3};
  EXPECT_EQ(tags(blocked.forward()),
            wide ? "aBcd16b ABcd16b16a -> aBcd16b" : "aBcd8b ABcd8b8a -> aBcd8b");
  EXPECT_EQ(tags(odd.forward()), "abcd abcd -> abcd");
  if (isa() == Isa::sse4) GTEST_SKIP() << "the rest needs AVX2";
  EXPECT_EQ(tags(first.forward()), wide ? "abcd Acdb16a -> aBcd16b" : "abcd Acdb8a -> aBcd8b");
  EXPECT_EQ(tags(deep.forward()), wide ? "aBcd16b Abcd16a -> aBcd16b" : "aBcd8b Abcd8a -> aBcd8b");
  EXPECT_EQ(tags(blocked.input_gradient()),
            wide ? "aBcd16b ABcd16a16b -> aBcd16b" : "aBcd8b ABcd8a8b -> aBcd8b");
}

TEST(Conv, GivesTheGradientOfAWeightInTheLayoutOfTheWeight) {
  if (isa() == Isa::sse4) GTEST_SKIP() << "oneDNN has no blocked weight gradient below AVX2";
  for (const Conv& conv :
       {Conv{2, 32, 9, 9, 16, 1, 1}, Conv{2, 32, 9, 9, 16, 3, 3, pad(1)},
        Conv{2, 32, 8, 8, 16, 3, 3, pad(1, 2)}, Conv{2, 3, 32, 32, 16, 7, 7, pad(3, 2)},
        Conv{2, 32, 6, 6, 32, 3, 3, pad(1, 1, 2)}, Conv{2, 16, 9, 9, 16, 3, 3, pad(1, 2, 16)},
        Conv{2, 12, 7, 7, 10, 3, 3}}) {
    const Call forward = conv.forward(), gradient = conv.weight_gradient();
    EXPECT_EQ(run_kernel("onednn.conv", forward, inputs_of(forward)).offer.in[1].tag(4),
              run_kernel("onednn.conv", gradient, inputs_of(gradient)).offer.out[0].tag(4))
        << describe(forward);
  }
}

TEST(Conv, OffersOnlyLayoutsWithoutPadding) {
  for (const Conv& conv : cases())
    for (const Call& call : conv.all()) {
      const Outcome o = run_kernel("onednn.conv", call, inputs_of(call));
      for (size_t i = 0; i < call.in.size(); ++i)
        EXPECT_TRUE(o.offer.in[i].exact(call.in[i].shape)) << describe(call);
      EXPECT_TRUE(o.offer.out[0].exact(call.op->infer(call.params, call.in)[0].shape))
          << describe(call);
    }
}

TEST(Conv, OverNothingGivesZeros) {
  const Conv none{0, 8, 5, 5, 8, 3, 3};
  for (const Call& call : {none.forward(), none.input_gradient(), none.weight_gradient()}) {
    const auto inputs = inputs_of(call);
    const Outcome got = run_kernel("onednn.conv", call, inputs);
    ASSERT_EQ(got.refusal, "") << describe(call);
    expect_near(got.out[0], run_reference(call, inputs)[0], 0);
  }
  const Conv no_channels{2, 0, 5, 5, 8, 3, 3};
  EXPECT_EQ(run_kernel("onednn.conv", no_channels.with_bias(), inputs_of(no_channels.with_bias()))
                .refusal,
            "an empty operand");
}

TEST(Conv, RefusesOtherTypesWithAReason) {
  Call call = Conv{1, 8, 5, 5, 8, 3, 3}.forward();
  for (TensorType& t : call.in) t.dtype = DType::f64;
  EXPECT_EQ(run_kernel("onednn.conv", call, inputs_of(call)).refusal, "takes f32, got f64");
}

void expect_fused(const Conv& conv, bool bias, bool residual, const std::string& activation) {
  Call call{&ops::fused_conv_op, ops::FusedConvParams{conv.p, bias, residual, activation},
            conv.forward().in};
  if (bias) call.in.push_back({DType::f32, {conv.k}});
  if (residual) call.in.push_back({DType::f32, conv.y()});
  const auto inputs = inputs_of(call);
  const auto want = run_reference(call, inputs)[0];
  for (const Options& options : {Options{1}, Options{2, false, true}, Options{2, true}}) {
    SCOPED_TRACE(describe(call) + (options.in_place ? " in place" : ""));
    const Outcome got = run_kernel("onednn.conv", call, inputs, options);
    ASSERT_EQ(got.refusal, "");
    EXPECT_EQ(got.offer.in_place.size(), residual ? 1u : 0u);
    expect_near(got.out[0], want, 5e-5);  // sums reach 50 before an activation squashes them
  }
}

TEST(FusedConv, EqualsTheReferenceInEveryForm) {
  for (const Conv& conv :
       {Conv{2, 16, 7, 7, 16, 3, 3, pad(1)}, Conv{2, 32, 5, 5, 16, 1, 1},
        Conv{2, 3, 9, 9, 8, 3, 3, pad(1, 2)}, Conv{2, 16, 6, 6, 16, 3, 3, pad(1, 1, 16)},
        Conv{1, 5, 6, 6, 7, 3, 3}, Conv{1, 640, 3, 3, 64, 3, 3, pad(1)}})
    for (const char* activation : {"none", "relu", "silu"})
      for (const int extra : {0, 1, 2, 3}) expect_fused(conv, extra & 1, extra & 2, activation);
}

TEST(FusedConv, EqualsTheReferenceWithEveryActivation) {
  for (const char* activation :
       {"clamp{low=0.0, high=6.0}", "leaky_relu{slope=0.1}", "hardswish", "sigmoid", "tanh",
        "elu{alpha=0.7}", "gelu", "hardsigmoid", "softplus"})
    for (const Conv& conv : {Conv{2, 16, 7, 7, 16, 3, 3, pad(1)}, Conv{1, 5, 6, 6, 7, 3, 3}})
      for (const bool residual : {false, true}) expect_fused(conv, true, residual, activation);
}

TEST(FusedConv, RefusesAnActivationThatOneDnnLacks) {
  Call call = Conv{1, 8, 5, 5, 8, 3, 3}.forward();
  call.op = &ops::fused_conv_op;
  call.params = ops::FusedConvParams{{}, false, false, "cos"};
  EXPECT_EQ(run_kernel("onednn.conv", call, inputs_of(call)).refusal, "oneDNN has no cos");
}

TEST(FusedConv, SaysWhatAnActivationIs) {
  Call call = Conv{1, 8, 5, 5, 8, 3, 3}.forward();
  for (const char* wrong : {"add", "conv", "relu(", "t1 = relu(i0) -> t1", ""})
    EXPECT_THROW(ops::fused_conv_op.infer(ops::FusedConvParams{{}, false, false, wrong}, call.in),
                 Error)
        << wrong;
}

}  // namespace
}  // namespace cairn::cpu
