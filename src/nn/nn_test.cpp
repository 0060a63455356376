// SPDX-License-Identifier: Apache-2.0
#include <cairn/nn.h>
#include <cairn/safetensors.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "ops/context.h"

namespace cairn::nn {
namespace {

struct Net : nn::Module {
  nn::Conv2d conv{this, "conv", 3, 8, {.kernel = 3, .padding = 1}};
  nn::BatchNorm2d norm{this, "norm", 8};
  nn::Linear head{this, "head", 8, 2};
  Tensor forward(const Tensor& x) { return head(mean(relu(norm(conv(x))), {2, 3})); }
};

struct Blocks : nn::Module {
  using Module::Module;
  nn::List<nn::Linear> blocks{this, "blocks"};
  nn::Sequential tail{this, "tail"};
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (nn::Linear& block : blocks) y = block(y);
    return tail(y);
  }
};

std::vector<std::string> names(const std::vector<Variable>& variables) {
  std::vector<std::string> out;
  for (const Variable& v : variables) out.push_back(v.name());
  return out;
}

std::string temporary_folder() {
  std::string path = (std::filesystem::temp_directory_path() / "cairn-nn-XXXXXX").string();
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  return path;
}

class WeightsTest : public testing::Test {
 protected:
  std::filesystem::path folder = temporary_folder();
  ~WeightsTest() override { std::filesystem::remove_all(folder); }
};

TEST(Module, NamesItsVariablesAsPyTorchDoes) {
  Net net;
  EXPECT_EQ(names(net.variables()),
            (std::vector<std::string>{"conv.weight", "conv.bias", "norm.weight", "norm.bias",
                                      "norm.running_mean", "norm.running_var",
                                      "norm.num_batches_tracked", "head.weight", "head.bias"}));
  EXPECT_EQ(names(net.parameters()),
            (std::vector<std::string>{"conv.weight", "conv.bias", "norm.weight", "norm.bias",
                                      "head.weight", "head.bias"}));
  EXPECT_EQ(net.parameter_count(), 3 * 8 * 9 + 8 + 16 + 16 + 2);
  EXPECT_EQ(&net.child("conv"), &net.conv);
}

TEST(Module, RefusesTwoChildrenOfOneName) {
  Net net;
  EXPECT_THROW(nn::Linear(&net, "head", 2, 2), Error);
  EXPECT_THROW(nn::Linear(&net, "a.b", 2, 2), Error);
  EXPECT_EQ(net.children().size(), 3u);
  { nn::Linear more(&net, "more", 2, 2); }
  EXPECT_EQ(net.children().size(), 3u) << "a child that is gone is not in the tree";
}

TEST(Module, ListsAndSequencesNumberTheirChildren) {
  Blocks net;
  net.blocks.add(4, 4);
  net.blocks.add(4, 4);
  net.tail.add([](const Tensor& x) { return relu(x); });
  net.tail.add<nn::Linear>(4, 2);
  EXPECT_EQ(names(net.parameters()),
            (std::vector<std::string>{"blocks.0.weight", "blocks.0.bias", "blocks.1.weight",
                                      "blocks.1.bias", "tail.1.weight", "tail.1.bias"}));
  EXPECT_EQ(net(Tensor::ones({3, 4})).shape(), (Shape{3, 2}));
}

TEST(Module, ErrorsTellTheModuleAndTheUsersLine) {
  Blocks net;
  net.blocks.add(4, 5);
  net.blocks.add(4, 5);
  try {
    net(Tensor::ones({3, 4}));
    FAIL();
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("blocks.1"), std::string::npos) << what;
    EXPECT_NE(what.find("nn_test.cpp"), std::string::npos) << what;
  }
  EXPECT_EQ(module_path(), "") << "an error leaves the path as it was";
}

struct PathProbe : nn::Module {
  using Module::Module;
  std::string seen;
  Tensor forward(const Tensor& x) override { return seen = module_path(), x; }
};

TEST(Module, ACallKnowsItsWholePath) {
  struct Outer : nn::Module {
    nn::List<PathProbe> list{this, "list"};
    PathProbe one{this, "one"};
    Tensor forward(const Tensor& x) override { return one(list[0](x)); }
  } outer;
  outer.list.add();
  outer(Tensor::ones({1}));
  EXPECT_EQ(outer.list[0].seen, "list.0");
  EXPECT_EQ(outer.one.seen, "one");
  outer.list[0](Tensor::ones({1}));
  EXPECT_EQ(outer.list[0].seen, "list.0") << "called from outside, the place is the same";
}

TEST(Init, DependsOnSeedAndNameAlone) {
  Net a, b;
  EXPECT_EQ(a.conv.weight.value().values<float>(), b.conv.weight.value().values<float>());
  b.initialize(7);
  EXPECT_NE(a.conv.weight.value().values<float>(), b.conv.weight.value().values<float>());
  const InitScope scope({.seed = 7});
  struct Lone : nn::Module {
    nn::Conv2d conv{this, "conv", 3, 8, {.kernel = 3}};
    Tensor forward(const Tensor& x) override { return conv(x); }
  } lone;
  EXPECT_EQ(lone.conv.weight.value().values<float>(), b.conv.weight.value().values<float>());
}

TEST(Init, FloatsAreTheDoublesRounded) {
  const TensorType f32{DType::f32, {50}}, f64{DType::f64, {50}};
  for (const Distribution& d : {Distribution{Distribution::Kind::normal, 1, 2},
                                Distribution{Distribution::Kind::uniform, -1, 3}}) {
    const auto single = draw(d, f32, 3, "w").values<float>();
    const auto twice = draw(d, f64, 3, "w").values<double>();
    for (size_t i = 0; i < single.size(); ++i) EXPECT_EQ(single[i], float(twice[i]));
  }
}

TEST(Init, HasTheMomentsThatItPromises) {
  const auto moments = [](const Init& init, const Shape& shape) {
    const auto v = draw(init(shape), {DType::f64, shape}, 1, "w").values<double>();
    double sum = 0, squares = 0, largest = 0;
    for (double x : v) sum += x, squares += x * x, largest = std::max(largest, std::abs(x));
    return std::array{sum / double(v.size()), std::sqrt(squares / double(v.size())), largest};
  };
  const Shape shape{64, 32, 5, 5};
  const auto normal = moments(init::kaiming_normal(init::Fan::out), shape);
  EXPECT_NEAR(normal[0], 0, 1e-3);
  EXPECT_NEAR(normal[1], std::sqrt(2.0 / (64 * 25)), 5e-4);
  const auto uniform = moments(init::kaiming_uniform(init::Fan::in, std::sqrt(5.0)), shape);
  const double bound = 1 / std::sqrt(32.0 * 25);
  EXPECT_LE(uniform[2], bound);
  EXPECT_GT(uniform[2], 0.999 * bound);
  EXPECT_NEAR(uniform[1], bound / std::sqrt(3.0), 2e-4);
  EXPECT_NEAR(moments(init::xavier_uniform(), {30, 20})[2], std::sqrt(6.0 / 50), 1e-2);
  EXPECT_THROW(init::kaiming_normal()({7}), Error);
}

TEST(BatchNorm, MovesRunningStatisticsAsPyTorchDoes) {
  struct Lone : nn::Module {
    nn::BatchNorm2d norm{this, "norm", 2, {.momentum = 0.3}};
    Tensor forward(const Tensor& x) override { return norm(x); }
  } net;
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 10, 20, 30, 60}, {2, 2, 1, 2});
  {
    const TrainingScope training(true);
    const auto y = net(x).values<float>();
    // Channel 0 holds 1 2 10 20, channel 1 holds 3 4 30 60.
    EXPECT_NEAR(y[0], (1 - 8.25) / std::sqrt(58.1875 + 1e-5), 1e-5);
  }
  const auto mean = net.norm.running_mean.value().values<float>(),
             var = net.norm.running_var.value().values<float>();
  EXPECT_NEAR(mean[0], 0.3 * 8.25, 1e-5);
  EXPECT_NEAR(mean[1], 0.3 * 24.25, 1e-5);
  EXPECT_NEAR(var[0], 0.7 + 0.3 * 58.1875 * 4 / 3, 1e-4);
  EXPECT_EQ(net.norm.num_batches_tracked.value().item(), 1);
  const auto y = net(x).values<float>();  // evaluation: by the running ones, which stay
  EXPECT_NEAR(y[0], (1 - mean[0]) / std::sqrt(var[0] + 1e-5), 1e-5);
  EXPECT_EQ(net.norm.running_mean.value().values<float>(), mean);
}

TEST(BatchNorm, StaysStillWhenFrozen) {
  Net net;
  net.freeze("norm");
  EXPECT_FALSE(net.norm.weight.trainable());
  EXPECT_TRUE(net.conv.weight.trainable());
  const TrainingScope training(true);
  net(Tensor::ones({2, 3, 4, 4}));
  EXPECT_EQ(net.norm.running_mean.value().values<float>(), std::vector<float>(8, 0));
  EXPECT_EQ(net.norm.num_batches_tracked.value().item(), 0);
  net.unfreeze("norm");
  net(Tensor::ones({2, 3, 4, 4}));
  EXPECT_EQ(net.norm.num_batches_tracked.value().item(), 1);
  EXPECT_FALSE(net.norm.running_mean.trainable()) << "state is never trained";
}

TEST(BatchNorm, RefusesOneValueAChannelInTraining) {
  struct Lone : nn::Module {
    nn::BatchNorm2d norm{this, "norm", 2};
    Tensor forward(const Tensor& x) override { return norm(x); }
  } net;
  EXPECT_NO_THROW(net(Tensor::ones({1, 2, 1, 1})));
  const TrainingScope training(true);
  EXPECT_THROW(net(Tensor::ones({1, 2, 1, 1})), Error);
}

TEST(Module, FreezesByNameAndSaysWhenThereIsNone) {
  Net net;
  net.freeze("head.bias");
  EXPECT_FALSE(net.head.bias.trainable());
  EXPECT_TRUE(net.head.weight.trainable());
  EXPECT_THROW(net.freeze("hea"), Error);
  net.freeze();
  for (const Variable& v : net.parameters()) EXPECT_FALSE(v.trainable());
}

TEST(Dropout, ActsInTrainingOnlyAndByStep) {
  struct Lone : nn::Module {
    nn::Dropout drop{this, "drop", 0.4};
    Tensor forward(const Tensor& x) override { return drop(x); }
  } net;
  const Tensor x = Tensor::ones({10000});
  EXPECT_EQ(net(x).values<float>(), x.values<float>());
  const TrainingScope training(true);
  const auto at = [&](int64_t step) {
    const RandomScope random(Tensor::scalar(1, DType::i64),
                             Tensor::scalar(double(step), DType::i64));
    return net(x).values<float>();
  };
  const auto y = at(1);
  EXPECT_EQ(y, at(1));
  EXPECT_NE(y, at(2));
  int64_t zeros = 0;
  for (float v : y) {
    if (v == 0)
      ++zeros;
    else
      EXPECT_FLOAT_EQ(v, 1 / 0.6f);
  }
  EXPECT_NEAR(double(zeros), 4000, 250);
}

TEST_F(WeightsTest, ComeBackFromAFile) {
  Net a, b;
  a.initialize(5);
  save_weights(a, folder / "w.safetensors");
  const LoadReport report = load_weights(b, folder / "w.safetensors");
  EXPECT_EQ(report.loaded.size(), 9u);
  for (size_t i = 0; i < a.variables().size(); ++i)
    EXPECT_EQ(a.variables()[i].value().to_doubles(), b.variables()[i].value().to_doubles());
}

TEST_F(WeightsTest, ThatDoNotFitAreListedAndChangeNothing) {
  Net a, b;
  a.initialize(5);
  NamedTensors tensors;
  for (const Variable& v : a.variables()) {
    if (v.name() == "conv.bias" || v.name() == "norm.num_batches_tracked") continue;
    tensors.emplace_back(v.name(), v.name() == "head.weight" ? Tensor::zeros({5, 8}) : v.value());
  }
  tensors.emplace_back("stray", Tensor::zeros({1}));
  write_safetensors(folder / "w.safetensors", tensors);
  const auto before = b.norm.weight.value().to_doubles();
  try {
    load_weights(b, folder / "w.safetensors");
    FAIL();
  } catch (const Error& e) {
    const std::string what = e.what();
    for (const char* part : {"1 missing in the file: conv.bias", "1 unexpected in the file: stray",
                             "head.weight (got f32[5,8], expected f32[2,8])"})
      EXPECT_NE(what.find(part), std::string::npos) << what;
    EXPECT_EQ(what.find("num_batches"), std::string::npos) << "files of old PyTorch lack it";
  }
  EXPECT_EQ(b.norm.weight.value().to_doubles(), before);
  const LoadReport report =
      load_weights(b, folder / "w.safetensors", {.strict = false, .reset = {"head"}});
  EXPECT_EQ(report.reset, std::vector<std::string>{"head.weight"});
  EXPECT_EQ(report.missing, std::vector<std::string>{"conv.bias"});
  EXPECT_EQ(b.conv.weight.value().to_doubles(), a.conv.weight.value().to_doubles());
}

TEST_F(WeightsTest, OfAnotherFloatWidthAreConverted) {
  Net single;
  single.initialize(5);
  save_weights(single, folder / "w.safetensors");
  const InitScope scope({.dtype = DType::f64});
  Net twice;
  load_weights(twice, folder / "w.safetensors");
  EXPECT_EQ(twice.conv.weight.type().dtype, DType::f64);
  EXPECT_EQ(twice.conv.weight.value().to_doubles(), single.conv.weight.value().to_doubles());
}

TEST_F(WeightsTest, OfNothingThatFitsAreAnErrorEvenWhenNotStrict) {
  write_safetensors(folder / "w.safetensors", {{"other", Tensor::zeros({1})}});
  Net net;
  EXPECT_THROW(load_weights(net, folder / "w.safetensors", {.strict = false}), Error);
}

}  // namespace
}  // namespace cairn::nn
