// SPDX-License-Identifier: Apache-2.0
#include <cairn/autodiff.h>
#include <cairn/graph.h>
#include <gtest/gtest.h>

#include "ir/graph.h"
#include "runtime/memory_plan.h"

namespace cairn {
namespace {

Tensor ramp(const Shape& shape, DType dtype = DType::f32, double scale = 0.1, double shift = -0.7) {
  std::vector<double> v;
  for (int64_t i = 0; i < shape.numel(); ++i) v.push_back(scale * double((i * 7919) % 31) + shift);
  return cast(Tensor::from(v, shape), dtype).dense();
}

void expect_near(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(to_string(a.type()), to_string(b.type()));
  const auto x = a.to_doubles(), y = b.to_doubles();
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], tolerance) << "element " << i;
}

TEST(Plan, GivesWhatEagerGives) {
  const Function f = [](const std::vector<Tensor>& in) {
    const Tensor h = relu(linear(in[0], in[1], in[2]));
    return std::vector{softmax(h * 2.0 + 1.0), sum(h, {0})};
  };
  const std::vector<Tensor> in{ramp({4, 6}), ramp({5, 6}), ramp({5})};
  TypeList types;
  for (const auto& t : in) types.push_back(t.type());
  Plan plan(trace(f, types));
  const auto eager = f(in);
  for (int run = 0; run < 3; ++run) {
    const auto got = plan.run(in);
    ASSERT_EQ(got.size(), eager.size());
    for (size_t i = 0; i < got.size(); ++i) expect_near(got[i], eager[i], 1e-6);
  }
}

TEST(Plan, UpdatesVariablesAsEagerDoesOverManySteps) {
  const auto make = [] { return std::pair{Variable("w", ramp({3, 4}, DType::f64)), Variable("v", Tensor::zeros({3, 4}, DType::f64))}; };
  auto [w1, v1] = make();
  auto [w2, v2] = make();
  const auto step = [](Variable w, Variable v) {
    return Function([w, v](const std::vector<Tensor>& in) {
      Tape tape;
      const Tensor loss = mean(square(linear(in[0], w) - in[1]));
      const Tensor g = tape.gradient(loss, std::vector<Variable>{w})[0];
      const Tensor m = v.read() * 0.9 + g;
      v.assign(m);
      w.assign(w.read() - m * in[2]);
      return std::vector{loss};
    });
  };
  const std::vector<Tensor> in{ramp({5, 4}, DType::f64), ramp({5, 3}, DType::f64, 0.05), Tensor::scalar(0.1, DType::f64)};
  Compiled compiled(step(w2, v2));
  double first = 0;
  for (int i = 0; i < 20; ++i) {
    const Tensor a = step(w1, v1)(in)[0], b = compiled(in)[0];
    EXPECT_EQ(a.item(), b.item()) << "step " << i;
    if (i == 0) first = a.item();
  }
  EXPECT_LT(compiled(in)[0].item(), first);
  step(w1, v1)(in);
  EXPECT_EQ(w1.value().values<double>(), w2.value().values<double>());
  EXPECT_EQ(v1.value().values<double>(), v2.value().values<double>());
}

// Fusing, layouts and kernels leave a training step what it was.
void expect_convolution_step_as_eager(DType dtype, double tolerance, Tensor (*act)(const Arg&) = relu,
                                      const CompileOptions& options = {}) {
  const auto make = [&](std::string n, Shape s) { return Variable(std::move(n), ramp(s, dtype, 0.01, -0.15)); };
  const auto step = [&](std::vector<Variable> p) {
    return Function([p, act](const std::vector<Tensor>& in) {
      Tape tape;
      auto n1 = batch_norm_train(conv2d(in[0], p[0], {}, {.pad_h = 1, .pad_w = 1}), p[1], p[2]);
      const Tensor h = act(n1.y);
      auto n2 = batch_norm_train(conv2d(h, p[3], {}, {.pad_h = 1, .pad_w = 1}), p[1], p[2]);
      const Tensor y = relu(n2.y + h);
      const Tensor loss = mean(cross_entropy_each(linear(mean(y, {2, 3}), p[4]), in[1]));
      const auto g = tape.gradient(loss, p);
      for (size_t i = 0; i < p.size(); ++i) p[i].assign(p[i].read() - g[i] * 0.1);
      return std::vector{loss};
    });
  };
  const auto params = [&] {
    return std::vector{make("c1", {16, 3, 3, 3}), Variable("g", Tensor::ones({16}, dtype)),
                       Variable("b", Tensor::zeros({16}, dtype)), make("c2", {16, 16, 3, 3}), make("fc", {4, 16})};
  };
  auto p1 = params(), p2 = params();
  const std::vector<Tensor> in{ramp({4, 3, 8, 8}, dtype), Tensor::from<int64_t>({0, 1, 2, 3}, {4})};
  Compiled compiled(step(p2), options);
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(step(p1)(in)[0].item(), compiled(in)[0].item(), tolerance) << "step " << i;
  for (size_t i = 0; i < p1.size(); ++i) expect_near(p1[i].value(), p2[i].value(), 10 * tolerance);
}
TEST(Plan, ConvolutionStepIsEagerWithinRounding) { expect_convolution_step_as_eager(DType::f32, 1e-5); }
TEST(Plan, ConvolutionStepIsEagerInDoubles) { expect_convolution_step_as_eager(DType::f64, 1e-13); }

TEST(Plan, NormAndSiluAreOneBothWays) {
  std::string last;
  const CompileOptions options{.on_pass = [&](std::string_view, const std::function<std::string()>& text) { last = text(); }};
  expect_convolution_step_as_eager(DType::f64, 1e-13, silu, options);
  expect_convolution_step_as_eager(DType::f32, 1e-5, silu, options);
  EXPECT_NE(last.find("batch_norm_act_train{epsilon=1e-05, activation=\"silu\""), last.npos) << last;
  EXPECT_NE(last.find("batch_norm_act_grad{epsilon=1e-05, activation=\"silu\""), last.npos) << last;
  EXPECT_EQ(last.find("silu_grad"), last.npos) << last;
}

TEST(Plan, SwapsVariablesAndReturnsOldValues) {
  Variable a("a", Tensor::scalar(1)), b("b", Tensor::scalar(2));
  Compiled swap([&](const std::vector<Tensor>&) {
    const Tensor x = a.read(), y = b.read();
    a.assign(y);
    b.assign(x);
    return std::vector{x, y};
  });
  const auto out = swap({});
  EXPECT_EQ(out[0].item(), 1);
  EXPECT_EQ(out[1].item(), 2);
  EXPECT_EQ(a.value().item(), 2);
  EXPECT_EQ(b.value().item(), 1);
}

TEST(Plan, AValueThatTheUserHoldsNeverChanges) {
  Variable a("a", Tensor::scalar(1));
  const Tensor held = a.value();
  Compiled next([&](const std::vector<Tensor>&) {
    a.assign(a.read() + 1.0);
    return std::vector<Tensor>{};
  });
  next({});
  const Tensor later = a.value();
  next({});
  EXPECT_EQ(held.item(), 1);
  EXPECT_EQ(later.item(), 2);
  EXPECT_EQ(a.value().item(), 3);
}

TEST(Plan, CompilesOnceForEachShape) {
  int traces = 0;
  Compiled f([&](const std::vector<Tensor>& in) {
    ++traces;
    return std::vector{in[0] + 1.0};
  });
  f({Tensor::zeros({2})});
  f({Tensor::zeros({3})});
  f({Tensor::zeros({2})});
  EXPECT_EQ(traces, 2);
}

TEST(Plan, PlansForSeveralBatchSizesKeepOneCopyOfTheWeights) {
  constexpr size_t kWeights = 512 * 512 * sizeof(float);
  const auto plan_for = [](int64_t batch) {  // as a model that is loaded: its weights are constants
    const Tensor w = ramp({512, 512});
    return Plan(trace([&](auto& in) { return std::vector{matmul(in[0], w)}; }, {{DType::f32, {batch, 512}}}));
  };
  const size_t before = memory_stats().in_use;
  Plan one = plan_for(1), two = plan_for(2), eight = plan_for(8);
  EXPECT_LT(memory_stats().in_use - before, 2 * kWeights);
  expect_near(slice(eight.run({ramp({8, 512})})[0], {0, 0}, {2, 512}), two.run({slice(ramp({8, 512}), {0, 0}, {2, 512})})[0],
              1e-2);
}

TEST(Plan, RefusesInputsOfAnotherType) {
  Plan plan(trace([](auto& in) { return std::vector{relu(in[0])}; }, {{DType::f32, {2, 3}}}));
  try {
    plan.run({Tensor::zeros({3, 3})});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::shape_mismatch);
    EXPECT_NE(e.message().find("got f32[3,3], expected f32[2,3]"), std::string::npos) << e.what();
  }
}

TEST(Plan, RefusesWhatNoMemoryHolds) {
  const auto plan_for = [](int64_t n) {
    return Plan(trace([](auto& in) { return std::vector{exp(in[0]) + in[0]}; }, {{DType::f32, {n, 3}}}));
  };
  for (int64_t n : {int64_t(1) << 62, int64_t(1) << 40}) {
    EXPECT_THROW(plan_for(n), Error) << n;
    Graph graph;
    EXPECT_THROW(graph.add_input({DType::f32, {n, n}}, "x"), Error) << n;
  }
  try {
    const Plan plan = plan_for(int64_t(1) << 38);
    FAIL() << "planned 6 TB";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::out_of_memory) << e.what();
  }
}

TEST(MemoryPlan, NeverOverlapsWhatIsAliveTogether) {
  std::vector<Lifetime> lives;
  uint32_t r = 1;
  const auto next = [&](uint32_t n) { return (r = r * 1664525u + 1013904223u) / 65536 % n; };
  for (int i = 0; i < 300; ++i) {
    const int first = int(next(200));
    lives.push_back({size_t(next(5000)), first, first + int(next(40))});
  }
  const MemoryPlan plan = plan_memory(lives);
  for (size_t i = 0; i < lives.size(); ++i)
    for (size_t k = 0; k < i; ++k) {
      if (lives[i].bytes == 0 || lives[k].bytes == 0) continue;
      if (lives[i].first > lives[k].last || lives[k].first > lives[i].last) continue;
      EXPECT_TRUE(plan.offsets[i] + lives[i].bytes <= plan.offsets[k] || plan.offsets[k] + lives[k].bytes <= plan.offsets[i]);
    }
  EXPECT_GE(plan.arena_bytes, plan.lower_bound);
}

}  // namespace
}  // namespace cairn
