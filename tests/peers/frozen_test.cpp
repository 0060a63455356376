// SPDX-License-Identifier: Apache-2.0
// Three training steps of a narrow ResNet-18 against numbers that PyTorch computed in f64 (torch_parity.py --freeze).
#include <cairn/models.h>
#include <cairn/safetensors.h>
#include <cairn/train.h>
#include <gtest/gtest.h>

#include <cmath>

namespace cairn {
namespace {

struct Case {
  Mode mode;
  DType dtype;
  double tolerance;  // norm-wise; the file keeps gradients and parameters in f32
};

class Frozen : public testing::TestWithParam<Case> {};

double distance(const Tensor& got, const Tensor& expected, double least = 1e-30) {
  const auto a = got.to_doubles(), b = expected.to_doubles();
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    difference += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
  return std::sqrt(difference) / std::max(std::sqrt(norm), least);
}

TEST_P(Frozen, StepsEqualThoseOfPyTorch) {
  const auto [mode, dtype, tolerance] = GetParam();
  const SafetensorsFile file(CAIRN_SOURCE_DIR "/tests/peers/frozen.safetensors");
  const auto net = models::make("resnet18", {.classes = 5, .width = 0.0625, .dtype = dtype, .draw = false});
  for (const Variable& v : net->variables())
    if (is_float(v.type().dtype)) v.set_value(cast(file.tensor("weight/" + v.name()), v.type().dtype));
    else v.set_value(Tensor::zeros(v.type().shape, v.type().dtype));
  train::StepOptions options{.mode = mode};
  options.keep_gradients = true;
  train::Step step(*net, loss::cross_entropy(), optim::momentum({.lr = 0.01, .momentum = 0.9}), options);
  const Tensor x = cast(file.tensor("x"), dtype), y = file.tensor("y");
  const auto losses = file.tensor("loss").to_doubles();
  for (size_t k = 0; k < losses.size(); ++k) {
    const auto result = step.update(x, y, 0.01);
    EXPECT_NEAR(result.loss / losses[k], 1, dtype == DType::f64 ? 1e-10 : tolerance) << "step " << k + 1;
    if (k > 0) continue;
    EXPECT_LE(distance(result.output, file.tensor("logits")), dtype == DType::f64 ? 1e-10 : tolerance);
    const auto& parameters = step.optimizer().parameters();
    ASSERT_EQ(parameters.size(), 62u);
    for (size_t i = 0; i < parameters.size(); ++i)
      EXPECT_LE(distance(result.gradients[i], file.tensor("grad/" + parameters[i].name()), 1e-3), tolerance)
          << parameters[i].name();
  }
  for (const Variable& v : net->variables())
    if (is_float(v.type().dtype))
      EXPECT_LE(distance(v.value(), file.tensor("param/" + v.name())), tolerance) << v.name();
}

INSTANTIATE_TEST_SUITE_P(Modes, Frozen,
                         testing::Values(Case{Mode::eager, DType::f64, 2e-7}, Case{Mode::graph, DType::f64, 2e-7},
                                         Case{Mode::eager, DType::f32, 1e-3}, Case{Mode::graph, DType::f32, 1e-3}),
                         [](const auto& p) {
                           return std::string(p.param.mode == Mode::eager ? "eager_" : "graph_") +
                                  std::string(name(p.param.dtype));
                         });

}  // namespace
}  // namespace cairn
