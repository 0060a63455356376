// SPDX-License-Identifier: Apache-2.0
// Small models for small pictures of a fixed size: LeNet-5 (LeCun et al. 1998, with ReLU and
// maximum pooling) and a multi-layer perceptron.
#include <fmt/format.h>

#include <cmath>

#include "models/models.h"

namespace cairn::models {
namespace {

int64_t times(int64_t features, double width) {
  return std::max<int64_t>(1, std::llround(double(features) * width));
}

struct LeNet : nn::Module {
  const int64_t c1, c2, side;
  nn::Conv2d conv1, conv2;
  nn::Linear fc1, fc2, fc3;

  static int64_t last_side(int64_t input) {  // two 5×5 convolutions, each halved
    const int64_t side = ((input - 4) / 2 - 4) / 2;
    if (side < 1)
      fail(ErrorCode::invalid_argument,
           fmt::format("lenet: got pictures of {0}×{0}, expected 16×16 or more", input));
    return side;
  }

  explicit LeNet(const Options& o)
      : c1(times(6, o.width)),
        c2(times(16, o.width)),
        side(last_side(o.input_size)),
        conv1(this, "conv1", o.in_channels, c1, {.kernel = 5}),
        conv2(this, "conv2", c1, c2, {.kernel = 5}),
        fc1(this, "fc1", c2 * side * side, times(120, o.width)),
        fc2(this, "fc2", times(120, o.width), times(84, o.width)),
        fc3(this, "fc3", times(84, o.width), o.classes) {}

  Tensor forward(const Tensor& x) override {
    Tensor y = max_pool2d(relu(conv1(x)), {});
    y = max_pool2d(relu(conv2(y)), {});
    return fc3(relu(fc2(relu(fc1(flatten(y))))));
  }
};

struct Mlp : nn::Module {
  nn::Linear fc1, fc2, fc3;
  explicit Mlp(const Options& o)
      : fc1(this, "fc1", o.in_channels * o.input_size * o.input_size, times(256, o.width)),
        fc2(this, "fc2", times(256, o.width), times(128, o.width)),
        fc3(this, "fc3", times(128, o.width), o.classes) {}
  Tensor forward(const Tensor& x) override { return fc3(relu(fc2(relu(fc1(flatten(x)))))); }
};

}  // namespace

std::unique_ptr<nn::Module> make_lenet(const Options& o) { return std::make_unique<LeNet>(o); }
std::unique_ptr<nn::Module> make_mlp(const Options& o) { return std::make_unique<Mlp>(o); }

}  // namespace cairn::models
