// SPDX-License-Identifier: Apache-2.0
#include <cairn/onnx.h>
#include <cairn/train.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

namespace cairn::train {
namespace {

struct Net : nn::Module {
  nn::Conv2d conv{this, "conv", 1, 4, {.kernel = 3, .padding = 1}};
  nn::BatchNorm2d norm{this, "norm", 4};
  nn::Linear head{this, "head", 4, 2};
  Tensor forward(const Tensor& x) override { return head(mean(relu(norm(conv(x))), {2, 3})); }
};

TEST(TrainerOnnx, HoldsTheModelThatWasMeasured) {
  std::vector<float> x;
  std::vector<int64_t> y;
  for (int i = 0; i < 16 * 36; ++i) x.push_back(std::sin(float(i) * 0.3f) * float(i / 36 % 2 + 1));
  for (int i = 0; i < 16; ++i) y.push_back(i % 2);
  const Tensor pictures = Tensor::from(x, {16, 1, 6, 6}), labels = Tensor::from(y, {16});
  Net net;
  Trainer trainer(net, loss::cross_entropy(), optim::momentum());
  std::string path = (std::filesystem::temp_directory_path() / "cairn-onnx-XXXXXX").string();
  ASSERT_NE(mkdtemp(path.data()), nullptr);
  const std::filesystem::path file = std::filesystem::path(path) / "model.onnx";
  EXPECT_THROW(trainer.write_onnx(file), Error) << "the shape is not known before the first batch";

  trainer.fit(Batches::of(pictures, labels, 4, {"weak", "strong"}), {.epochs = 3, .ema = 0.5});
  const auto weights = net.head.weight.value().to_doubles();
  const Evaluation measured =
      trainer.evaluate(Batches::of(pictures, labels, 16, {"weak", "strong"}));
  trainer.write_onnx(file);
  EXPECT_EQ(net.head.weight.value().to_doubles(), weights) << "the averages are out again";

  const auto model = onnx::Model::read(file);
  EXPECT_EQ(model.metadata().labels, (std::vector<std::string>{"weak", "strong"}));
  Plan plan(model.graph({pictures.type()}));
  const auto out = plan.run({pictures});
  ASSERT_EQ(out.size(), 2u);
  const auto probabilities = out[0].to_doubles();
  ASSERT_EQ(probabilities.size(), measured.scores.size());
  for (size_t i = 0; i < probabilities.size(); ++i)
    EXPECT_NEAR(probabilities[i], measured.scores[i], 1e-5);
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace cairn::train
