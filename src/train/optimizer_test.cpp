// SPDX-License-Identifier: Apache-2.0
// Optimisers and schedules against numbers that PyTorch 2.15 gave in f64.
#include <cairn/graph.h>
#include <cairn/optim.h>
#include <gtest/gtest.h>

namespace cairn::optim {
namespace {

struct Case {
  const char* text;
  std::vector<double> weights;  // after five steps
};
// w = (1, −2, 0.5), c = (0.3, 1, −0.7); the gradient of step i is i w − c.
const Case kCases[] = {
    {"sgd:lr=0.1", {0.21653999999999998, -0.084599999999999925, -0.076859999999999984}},
    {"sgd:lr=0.1,momentum=0.9,weight_decay=0.01",
     {-0.42898442187887104, 1.5438455130059023, -0.57886419147752044}},
    {"sgd:lr=0.1,momentum=0.9,dampening=0.3", {-0.25497829799999999, 1.26654402, -0.529426218}},
    {"nesterov:lr=0.1,weight_decay=0.02",
     {-0.19594675010541002, 0.74498736336435345, -0.28555448985301962}},
    {"adam:lr=0.05,weight_decay=0.01",
     {0.75868529823334663, -1.7532244201819009, 0.24962192304543035}},
    {"adam:lr=0.05,beta1=0.8,beta2=0.95,epsilon=1e-3",
     {0.75348837367750732, -1.749211805901653, 0.24756726193843179}},
    {"adamw:lr=0.05", {0.75655339124865617, -1.7485095533140544, 0.24863041260442875}},
    {"rmsprop:lr=0.02", {0.25981704836189362, -1.2355547855133004, -0.079861719524037561}},
    {"rmsprop:lr=0.02,momentum=0.9,weight_decay=0.1,centered=true,alpha=0.9",
     {0.21933604549168564, -1.2202489978057955, -0.19179249979699622}},
};

std::vector<double> five_steps(const Config& config, Mode mode, DType dtype = DType::f64) {
  const Variable w("w", cast(Tensor::from<double>({1, -2, 0.5}, {3}), dtype).dense());
  const Tensor c = cast(Tensor::from<double>({0.3, 1, -0.7}, {3}), dtype);
  Optimizer optimizer(config, {w});
  const Function step = [&](const std::vector<Tensor>& in) {
    const Tensor p = w.read();
    optimizer.update({p * cast(in[1], dtype) - c}, in[0], in[1]);
    return std::vector{sum(p)};
  };
  Compiled compiled(step);
  for (int64_t i = 1; i <= 5; ++i) {
    const std::vector<Tensor> in{Tensor::scalar(*config.options.lr, DType::f64),
                                 Tensor::from<int64_t>({i}, {})};
    mode == Mode::graph ? compiled(in) : step(in);
  }
  return w.value().to_doubles();
}

TEST(Optimizer, UpdatesAsPyTorchDoesInBothModes) {
  for (const Case& c : kCases)
    for (Mode mode : {Mode::eager, Mode::graph}) {
      const auto w = five_steps(parse(c.text), mode);
      for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(w[i], c.weights[i], 1e-14) << c.text;
      const auto single = five_steps(parse(c.text), mode, DType::f32);
      for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(single[i], c.weights[i], 2e-6) << c.text;
    }
}

TEST(Optimizer, TakesTheLearningRateAtRunTime) {
  const Variable w("w", Tensor::from<double>({1}, {1}));
  Optimizer optimizer(sgd(), {w});
  Compiled step([&](const std::vector<Tensor>& in) {
    optimizer.update({w.read() * 0.0 + 1.0}, in[0], in[1]);
    return std::vector{in[0]};
  });
  step({Tensor::scalar(0.5, DType::f64), Tensor::scalar(1, DType::i64)});
  step({Tensor::scalar(0.25, DType::f64), Tensor::scalar(2, DType::i64)});
  EXPECT_DOUBLE_EQ(w.value().item(), 0.25);
}

TEST(Optimizer, ClipsByNormAndByValueAsPyTorchDoes) {
  const Variable a("a", Tensor::zeros({2}, DType::f64)), b("b", Tensor::zeros({2, 2}, DType::f64));
  const std::vector<Tensor> g{Tensor::from<double>({3, 4}, {2}),
                              Tensor::from<double>({12, 0, 0, 0}, {2, 2})};
  const Tensor one = Tensor::scalar(1, DType::f64), step = Tensor::scalar(1, DType::i64);
  Optimizer by_norm(sgd({.lr = 1, .clip_norm = 6.5}), {a, b});
  EXPECT_DOUBLE_EQ(by_norm.update(g, one, step).item(), 13);
  EXPECT_NEAR(a.value().to_doubles()[0], -1.4999998846153937, 1e-15);
  EXPECT_NEAR(b.value().to_doubles()[0], -5.999999538461575, 1e-15);
  a.set_value(Tensor::zeros({2}, DType::f64));
  Optimizer by_value(sgd({.lr = 1, .clip_value = 3.5}), {a, b});
  EXPECT_FALSE(by_value.update(g, one, step).defined());
  EXPECT_EQ(a.value().to_doubles(), (std::vector<double>{-3, -3.5}));
}

TEST(Optimizer, ChangesNothingWhenToldNotToApply) {
  for (const Case& c : kCases) {
    const Variable w("w", Tensor::from<double>({1, 2}, {2}));
    Optimizer optimizer(parse(c.text), {w});
    const Tensor bad = Tensor::from<double>({std::numeric_limits<double>::quiet_NaN(), 1}, {2});
    optimizer.update({bad}, Tensor::scalar(0.1, DType::f64), Tensor::scalar(1, DType::i64),
                     Tensor::scalar(0, DType::boolean));
    EXPECT_EQ(w.value().to_doubles(), (std::vector<double>{1, 2})) << c.text;
    for (const Variable& s : optimizer.state())
      EXPECT_EQ(s.value().to_doubles(), (std::vector<double>{0, 0})) << s.name();
  }
}

TEST(Optimizer, GroupsAndDecayRulesActByName) {
  const Variable weight("fc.weight", Tensor::ones({2, 2})), bias("fc.bias", Tensor::ones({2})),
      frozen("old.weight", Tensor::ones({2, 2}), false), other("conv.weight", Tensor::ones({2, 2}));
  Optimizer optimizer(
      sgd({.lr = 0.1,
           .weight_decay = 0.5,
           .decay_all = false,
           .groups = {{.prefix = "fc", .lr_scale = 2}, {.prefix = "conv", .weight_decay = 0}}}),
      {weight, bias, frozen, other});
  EXPECT_EQ(optimizer.parameters().size(), 3u) << "frozen ones are not trained";
  optimizer.update({Tensor::zeros({2, 2}), Tensor::zeros({2}), Tensor::zeros({2, 2})},
                   Tensor::scalar(0.1, DType::f64), Tensor::scalar(1, DType::i64));
  EXPECT_FLOAT_EQ(weight.value().values<float>()[0], 1 - 0.2f * 0.5f);
  EXPECT_FLOAT_EQ(bias.value().values<float>()[0], 1);
  EXPECT_FLOAT_EQ(other.value().values<float>()[0], 1);
  EXPECT_THROW(Optimizer(sgd({.groups = {{.prefix = "f"}}}), {weight}), Error);
}

TEST(Optimizer, TextFormsReadBack) {
  for (const Case& c : kCases) {
    const std::string text = to_string(parse(c.text));
    EXPECT_EQ(to_string(parse(text)), text);
  }
  EXPECT_EQ(to_string(parse("sgd:lr=0.01,momentum=0.9,weight_decay=1e-4")),
            "sgd:lr=0.01,momentum=0.9,dampening=0,nesterov=false,weight_decay=0.0001");
  EXPECT_EQ(*parse("adamw").options.weight_decay, 0.01);
}

TEST(Optimizer, TextFormsThatMakeNoSenseAreRefused) {
  for (const char* text :
       {"", "sgdd", "sgd:", "sgd:lr", "sgd:lr=", "sgd:lr=x", "sgd:lr=nan", "sgd:lr=-1",
        "sgd:speed=3", "adam:momentum=0.9", "sgd:lr=1,lr=2", "sgd:nesterov=true", "sgd:beta1=0.5",
        "adam:beta1=1", "sgd:momentum=0.9,nesterov=maybe"})
    EXPECT_THROW(parse(text), Error) << text;
}

void expect_factors(const Schedule& s, const std::vector<double>& expected) {
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(s.factor(int64_t(i), 1, 10), expected[i], 1e-15) << to_string(s) << " at " << i;
}

TEST(Schedule, IsPyTorchsOfTheSameName) {
  expect_factors(
      parse_schedule("cosine:final=0.01"),
      {1, 0.9757729755661011, 0.90546341221559901, 0.79595369988477427, 0.65796341221559906, 0.505,
       0.35203658778440106, 0.21404630011522585, 0.10453658778440106, 0.034227024433899002});
  expect_factors(
      parse_schedule("one_cycle"),
      {0.040000000000000036, 0.52000000000000002, 1, 0.95048463201347366, 0.81174565394976306,
       0.61126202193628931, 0.38874197806371075, 0.18825834605023697, 0.049519367986526286, 4e-06});
  expect_factors(parse_schedule("step:every=3,gamma=0.1"),
                 {1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.001});
  expect_factors(parse_schedule("polynomial:power=2"),
                 {1, 0.81, 0.64, 0.49, 0.36, 0.25, 0.16, 0.09, 0.04, 0.01});
}

TEST(Schedule, WarmsUpInALineAndThenRunsItsCourse) {
  const Schedule s = parse_schedule("cosine:warmup=2");
  EXPECT_DOUBLE_EQ(s.factor(0, 5, 12), 0.1);
  EXPECT_DOUBLE_EQ(s.factor(4, 5, 12), 0.5);
  EXPECT_DOUBLE_EQ(s.factor(9, 5, 12), 1);
  EXPECT_DOUBLE_EQ(s.factor(10, 5, 12), 1);
  EXPECT_NEAR(s.factor(35, 5, 12), 0.5, 1e-15);  // half of what is left
  EXPECT_NEAR(s.factor(60, 5, 12), 0, 1e-15);
  EXPECT_DOUBLE_EQ(parse_schedule("constant").factor(12345, 5, 12), 1);
  EXPECT_DOUBLE_EQ(parse_schedule("step:every=1.5,gamma=0.5").factor(3, 2, 12), 0.5);
}

TEST(Schedule, TextFormsReadBackOrAreRefused) {
  for (const char* text :
       {"constant", "constant:warmup=3", "step:gamma=0.5,every=7", "cosine:final=0.01,warmup=5",
        "one_cycle:rise=0.2,start=10,end=100", "polynomial:final=0.1,power=2"})
    EXPECT_EQ(parse_schedule(to_string(parse_schedule(text))), parse_schedule(text)) << text;
  for (const char* text :
       {"", "sine", "cosine:every=2", "step:every=0", "one_cycle:rise=1", "cosine:warmup=-1"})
    EXPECT_THROW(parse_schedule(text), Error) << text;
}

}  // namespace
}  // namespace cairn::optim
