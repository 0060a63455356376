// SPDX-License-Identifier: Apache-2.0
// Three training steps of a narrow ResNet-18 against numbers that PyTorch computed in f64 (torch_parity.py --freeze).
#include <cairn/models.h>
#include <cairn/safetensors.h>
#include <cairn/train.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace cairn {
namespace {

struct Case {
  Mode mode;
  DType dtype;
  double tolerance;
};

class Frozen : public testing::TestWithParam<Case> {};

// The file keeps two numbers of each tensor: its product with cos(0), cos(1), … and its norm.
void expect_digest(const Tensor& got, const Tensor& digest, double tolerance, const std::string& what) {
  double product = 0, squares = 0, at = 0;
  for (double v : got.to_doubles()) product += v * std::cos(at++), squares += v * v;
  const auto expected = digest.to_doubles();
  const double bound = tolerance * std::max(expected[1], 1e-3);
  EXPECT_NEAR(product, expected[0], 4 * bound) << what;
  EXPECT_NEAR(std::sqrt(squares), expected[1], bound) << what;
}

double distance(const Tensor& got, const Tensor& expected) {
  const auto a = got.to_doubles(), b = expected.to_doubles();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i)
    difference += (a.at(i) - b[i]) * (a.at(i) - b[i]), norm += b[i] * b[i];
  return std::sqrt(difference / norm);
}

TEST_P(Frozen, StepsEqualThoseOfPyTorch) {
  const auto [mode, dtype, tolerance] = GetParam();
  const SafetensorsFile file(CAIRN_SOURCE_DIR "/tests/peers/frozen.safetensors");
  const auto net = models::make("resnet18", {.classes = 5, .width = 0.0625, .dtype = dtype, .draw = false});
  for (const Variable& v : net->variables())
    v.set_value(is_float(v.type().dtype) ? cast(file.tensor("weight/" + v.name()), v.type().dtype)
                                         : Tensor::zeros(v.type().shape, v.type().dtype));
  train::StepOptions options{.mode = mode};
  options.keep_gradients = true;
  train::Step step(*net, loss::cross_entropy(), optim::momentum({.lr = 0.01, .momentum = 0.9}), options);
  const Tensor x = cast(file.tensor("x"), dtype), y = file.tensor("y");
  const auto losses = file.tensor("loss").to_doubles();
  for (size_t k = 0; k < losses.size(); ++k) {
    const auto result = step.update(x, y, 0.01);
    EXPECT_NEAR(result.loss / losses[k], 1, tolerance) << "step " << k + 1;
    if (k > 0) continue;
    EXPECT_LE(distance(result.output, file.tensor("logits")), tolerance);
    const auto& parameters = step.optimizer().parameters();
    ASSERT_EQ(parameters.size(), 62u);
    for (size_t i = 0; i < parameters.size(); ++i)
      expect_digest(result.gradients[i], file.tensor("grad/" + parameters[i].name()), tolerance,
                    "gradient of " + parameters[i].name());
  }
  for (const Variable& v : net->variables())
    if (is_float(v.type().dtype)) expect_digest(v.value(), file.tensor("param/" + v.name()), tolerance, v.name());
}

INSTANTIATE_TEST_SUITE_P(Modes, Frozen,
                         testing::Values(Case{Mode::eager, DType::f64, 1e-10}, Case{Mode::graph, DType::f64, 1e-10},
                                         Case{Mode::eager, DType::f32, 1e-3}, Case{Mode::graph, DType::f32, 1e-3}),
                         [](const auto& p) {
                           return std::string(p.param.mode == Mode::eager ? "eager_" : "graph_") +
                                  std::string(name(p.param.dtype));
                         });

}  // namespace
}  // namespace cairn
