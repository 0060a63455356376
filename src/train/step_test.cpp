// SPDX-License-Identifier: Apache-2.0
// A training step: against PyTorch 2.15, eager against compiled, accumulation, averages, loss
// scale.
#include <cairn/train.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "train/loss_scale.h"

namespace cairn::train {
namespace {

// What both sides are filled with: shift + scale · sin(0.7 i + phase).
Tensor waves(const Shape& shape, double phase, double scale = 1, double shift = 0,
             DType dtype = DType::f64) {
  std::vector<double> v;
  for (int64_t i = 0; i < shape.numel(); ++i)
    v.push_back(shift + scale * std::sin(0.7 * double(i) + phase));
  return cast(Tensor::from(v, shape), dtype).dense();
}
double digest(const Tensor& t) {
  const auto v = t.to_doubles(), w = waves(t.shape(), 0.1).to_doubles();
  double out = 0;
  for (size_t i = 0; i < v.size(); ++i) out += v[i] * w[i];
  return out;
}

struct Net : nn::Module {
  nn::Conv2d conv1{this, "conv1", 2, 4, {.kernel = 3, .padding = 1, .bias = false}};
  nn::BatchNorm2d norm1{this, "norm1", 4};
  nn::Conv2d conv2{this, "conv2", 4, 4, {.kernel = 3, .stride = 2, .padding = 1, .groups = 4}};
  nn::BatchNorm2d norm2{this, "norm2", 4};
  nn::Linear head{this, "head", 4, 3};
  Net() {
    double phase = 1;
    for (const Variable& p : parameters()) {
      const bool scale = p.name().starts_with("norm") && p.name().ends_with("weight");
      p.set_value(waves(p.type().shape, phase++, 0.5, scale ? 1 : 0, p.type().dtype));
    }
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = max_pool2d(relu(norm1(conv1(x))), {});
    return head(mean(relu6(norm2(conv2(y))), {2, 3}));
  }
};

const std::map<std::string, double> kFirstGradients{{"conv1.weight", -0.024323405756360283},
                                                    {"norm1.weight", 0.0056941411394711289},
                                                    {"norm1.bias", 0.036047711833753153},
                                                    {"conv2.weight", -0.28136850083270371},
                                                    {"conv2.bias", 0},
                                                    {"norm2.weight", 0.057182905016507461},
                                                    {"norm2.bias", 0.088143159708591837},
                                                    {"head.weight", 0.40344013729101535},
                                                    {"head.bias", -0.046685256244250822}};
const double kLosses[] = {1.2241190988415351, 1.1866757588779913, 1.127088275153912,
                          1.0665827246742456, 1.0228506189362756};
const std::map<std::string, double> kAfterFive{
    {"conv1.weight", 11.052169106090144},      {"norm1.weight", 2.3077057410093089},
    {"norm1.bias", -1.085415182718066},        {"norm1.running_mean", -0.004712236285537243},
    {"norm1.running_var", 2.5545770273662756}, {"conv2.weight", -6.1040343772071459},
    {"conv2.bias", 0.1060191753087727},        {"norm2.weight", 3.5028564702956837},
    {"norm2.bias", 0.87044913959893289},       {"norm2.running_mean", 0.38251543704308949},
    {"norm2.running_var", 1.765929094157378},  {"head.weight", -0.19535881238534802},
    {"head.bias", -0.42924576711678641}};
const double kEvaluated[] = {0.20581493282217553, -0.16438416346912346, 0.078485089794737783,
                             0.14317900567964456, -0.1747142051849275,  0.22432300325981169,
                             0.00475351210322425, 0.029282650015448275, -0.14079822128133207};

void expect_as_pytorch(Mode mode, DType dtype, double tolerance) {
  const nn::InitScope scope({.dtype = dtype});
  Net net;
  const Tensor x = waves({3, 2, 8, 8}, 0.3, 1, 0, dtype), y = Tensor::from<int64_t>({0, 2, 1}, {3});
  Step step(net, loss::cross_entropy({.smoothing = 0.1}),
            optim::parse("sgd:lr=0.1,momentum=0.9,weight_decay=0.01"),
            {.mode = mode, .keep_gradients = true});
  for (int i = 0; i < 5; ++i) {
    const StepResult r = step.update(x, y, 0.1);
    EXPECT_TRUE(r.applied);
    EXPECT_NEAR(r.loss, kLosses[i], tolerance) << "step " << i;
    if (i > 0) continue;
    ASSERT_EQ(r.gradients.size(), kFirstGradients.size());
    for (size_t k = 0; k < r.gradients.size(); ++k) {
      const std::string& name = step.optimizer().parameters()[k].name();
      EXPECT_NEAR(digest(r.gradients[k]), kFirstGradients.at(name), tolerance) << name;
    }
  }
  for (const Variable& v : net.variables()) {
    if (is_float(v.type().dtype))
      EXPECT_NEAR(digest(v.value()), kAfterFive.at(v.name()), 10 * tolerance) << v.name();
    else
      EXPECT_EQ(v.value().item(), 5) << v.name();
  }
  const auto out = net(x).to_doubles();
  for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], kEvaluated[i], 10 * tolerance);
}

TEST(Step, TrainsAsPyTorchDoesEagerly) {
  expect_as_pytorch(Mode::eager, DType::f64, 1e-12);
  expect_as_pytorch(Mode::eager, DType::f32, 3e-6);
}
TEST(Step, TrainsAsPyTorchDoesCompiled) {
  expect_as_pytorch(Mode::graph, DType::f64, 1e-12);
  expect_as_pytorch(Mode::graph, DType::f32, 3e-6);
}

// A model whose norms do not mix the pictures of a batch.
struct Plain : nn::Module {
  nn::Linear a{this, "a", 6, 8}, b{this, "b", 8, 3};
  nn::Dropout drop{this, "drop", 0.25};
  bool dropping = false;
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu(a(x));
    return b(dropping ? drop(h) : h);
  }
};
const Tensor kX = waves({8, 6}, 0.2), kY = Tensor::from<int64_t>({0, 1, 2, 0, 1, 2, 0, 1}, {8});

std::vector<std::vector<double>> values(const std::vector<Variable>& variables) {
  std::vector<std::vector<double>> out;
  for (const Variable& v : variables) out.push_back(v.value().to_doubles());
  return out;
}

TEST(Step, CompiledEqualsEagerBitForBitInDoubles) {
  const nn::InitScope scope({.dtype = DType::f64});
  std::vector<std::vector<double>> results[2];
  for (Mode mode : {Mode::eager, Mode::graph}) {
    Plain net;
    net.dropping = true;
    Step step(net, loss::cross_entropy(), optim::adamw({.clip_norm = 0.5}),
              {.mode = mode, .seed = 3, .ema = 0.9});
    for (int i = 0; i < 4; ++i) step.update(kX, kY, 0.01);
    auto all = net.variables();
    for (const Variable& v : step.state()) all.push_back(v);
    results[int(mode)] = values(all);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(Step, AccumulatedBatchesAreOneLargeBatch) {
  const nn::InitScope scope({.dtype = DType::f64});
  for (Mode mode : {Mode::eager, Mode::graph}) {
    Plain whole, parts;
    Step one(whole, loss::cross_entropy(), optim::momentum(), {.mode = mode});
    Step many(parts, loss::cross_entropy(), optim::momentum(), {.mode = mode, .accumulates = true});
    for (int i = 0; i < 3; ++i) {
      one.update(kX, kY, 0.1);
      many.accumulate(slice(kX, {0, 0}, {3, 6}), slice(kY, {0}, {3}));
      many.accumulate(slice(kX, {3, 0}, {6, 6}), slice(kY, {3}, {6}));
      many.update(slice(kX, {6, 0}, {8, 6}), slice(kY, {6}, {8}), 0.1);
    }
    const auto a = values(whole.variables()), b = values(parts.variables());
    for (size_t i = 0; i < a.size(); ++i)
      for (size_t j = 0; j < a[i].size(); ++j) EXPECT_NEAR(a[i][j], b[i][j], 1e-14);
    EXPECT_EQ(many.counters().iterations, 9);
    EXPECT_EQ(many.counters().updates, 3);
  }
}

TEST(Step, AveragesFollowTheWeights) {
  const nn::InitScope scope({.dtype = DType::f64});
  Plain net;
  Step step(net, loss::cross_entropy(), optim::sgd(), {.ema = 0.5});
  double average = net.a.bias.value().to_doubles()[0];
  for (int t = 1; t <= 12; ++t) {
    step.update(kX, kY, 0.3);
    const double d = std::min(0.5, (1.0 + t) / (10.0 + t));
    average = d * average + (1 - d) * net.a.bias.value().to_doubles()[0];
  }
  EXPECT_NEAR(step.averages()[1].value().to_doubles()[0], average, 1e-14);
}

TEST(Step, ThatIsNotFiniteChangesNothingAndTellsWhere) {
  struct Logarithm : nn::Module {
    nn::Linear a{
        this, "a", 2, 2, {.init = nn::init::constant(1), .bias_init = nn::init::constant(0)}};
    nn::BatchNorm2d norm{this, "norm", 2};
    Tensor forward(const Tensor& x) override {
      const Tensor h = norm(reshape(x, {-1, 2, 1, 1}));
      return a(log(x)) + mean(h, {2, 3}) * 0;
    }
  };
  for (Mode mode : {Mode::eager, Mode::graph}) {
    Logarithm net;
    Step step(net, loss::cross_entropy(), optim::momentum(), {.mode = mode, .ema = 0.9});
    const Tensor y = Tensor::from<int64_t>({0, 1}, {2}),
                 good = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
    EXPECT_TRUE(step.update(good, y, 0.1).applied);
    EXPECT_EQ(step.find_nonfinite(good, y), "");
    auto all = net.variables();
    for (const Variable& v : step.state()) all.push_back(v);
    const auto before = values(all);
    const Tensor bad = Tensor::from<float>({1, 2, -1, 4}, {2, 2});
    const StepResult r = step.update(bad, y, 0.1);
    EXPECT_FALSE(r.applied);
    EXPECT_TRUE(std::isnan(r.loss));
    EXPECT_EQ(values(all), before);
    EXPECT_EQ(step.counters().updates, 1);
    EXPECT_EQ(step.counters().skipped, 1);
    const std::string finding = step.find_nonfinite(bad, y);
    EXPECT_NE(finding.find("log gave"), std::string::npos) << finding;
    EXPECT_NE(finding.find("row 1"), std::string::npos) << finding;
    EXPECT_NE(finding.find("step_test.cpp"), std::string::npos) << finding;
    EXPECT_EQ(values(all), before) << "looking has no effect";
    EXPECT_TRUE(step.update(good, y, 0.1).applied) << "and training goes on";
  }
}

TEST(Step, FindsTheParameterThatIsNotFinite) {
  Plain net;
  Step step(net, loss::cross_entropy(), optim::sgd());
  auto v = net.b.weight.value().values<float>();
  v[5] = NAN;
  net.b.weight.set_value(Tensor::from(v, net.b.weight.type().shape));
  EXPECT_EQ(step.find_nonfinite(kX, kY), "parameter b.weight holds nan at element 5");
}

TEST(LossScale, LeavesTheUpdateAsItWas) {
  // Clipping acts on unscaled gradients: the same update at any scale, a power of two.
  std::vector<std::vector<double>> results[3];
  int i = 0;
  for (double scale : {0.0, 1.0, 65536.0}) {
    Plain net;
    LossScale config{.kind = scale > 0 ? LossScale::Kind::fixed : LossScale::Kind::none,
                     .scale = scale};
    Step step(net, loss::cross_entropy(), optim::momentum({.clip_norm = 0.1}),
              {.loss_scale = config});
    for (int k = 0; k < 3; ++k) EXPECT_GT(step.update(kX, kY, 0.1).gradient_norm, 0.1);
    results[i++] = values(net.variables());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[1], results[2]);
}

TEST(LossScale, BacksOffWhenItOverflowsAndGrowsAgain) {
  for (Mode mode : {Mode::eager, Mode::graph}) {
    Plain net;
    Step step(net, loss::cross_entropy(), optim::sgd(),
              {.mode = mode,
               .loss_scale = {.kind = LossScale::Kind::dynamic, .scale = 0x1p60, .interval = 3}});
    const Tensor huge = kX * 1e25;  // gradients overflow f32 at 2^60, the loss does not
    const auto before = values(net.variables());
    StepResult r = step.update(huge, kY, 1e-30);
    EXPECT_TRUE(std::isfinite(r.loss)) << r.loss;
    EXPECT_FALSE(r.applied);
    EXPECT_EQ(r.loss_scale, 0x1p60);
    EXPECT_EQ(values(net.variables()), before);
    std::vector<double> scales;
    for (int i = 0; i < 4; ++i) scales.push_back(step.update(kX, kY, 0.1).loss_scale);
    EXPECT_EQ(scales, (std::vector<double>{0x1p59, 0x1p59, 0x1p59, 0x1p60}));
    EXPECT_EQ(step.counters().updates, 4);
  }
}

TEST(LossScale, ReadsItsTextForm) {
  EXPECT_EQ(to_string(parse_loss_scale("none")), "none");
  EXPECT_EQ(to_string(parse_loss_scale("fixed:scale=128")), "fixed:scale=128,max_skips=50");
  const std::string text = to_string(parse_loss_scale("dynamic:interval=10"));
  EXPECT_EQ(to_string(parse_loss_scale(text)), text);
  for (const char* bad : {"", "other", "fixed:growth=2", "dynamic:backoff=1",
                          "dynamic:interval=0.5", "fixed:scale=0"})
    EXPECT_THROW(parse_loss_scale(bad), Error) << bad;
}

TEST(AllFinite, TellsNanAndInfinityFromLargeNumbers) {
  const float inf = std::numeric_limits<float>::infinity(),
              most = std::numeric_limits<float>::max();
  EXPECT_EQ(all_finite(Tensor::from<float>({1, -most, most}, {3})).item(), 1);
  EXPECT_EQ(all_finite(Tensor::from<float>({1, NAN, 2}, {3})).item(), 0);
  EXPECT_EQ(all_finite(Tensor::from<float>({NAN, 1, 2}, {3})).item(), 0);
  EXPECT_EQ(all_finite(Tensor::from<float>({1, 2, -inf}, {3})).item(), 0);
  EXPECT_EQ(all_finite(Tensor::scalar(NAN)).item(), 0);
}

}  // namespace
}  // namespace cairn::train
