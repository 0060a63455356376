// SPDX-License-Identifier: Apache-2.0
// MobileNetV2 (Sandler et al., "Inverted residuals and linear bottlenecks", 2018).
#include "models/models.h"

namespace cairn::models {
namespace {

nn::Conv2dOptions conv(int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
  return {.kernel = kernel,
          .stride = stride,
          .padding = kernel / 2,
          .groups = groups,
          .bias = false,
          .init = nn::init::kaiming_normal(nn::init::Fan::out)};
}

// Convolution, norm, ReLU6, as one numbered step of `to`.
struct ConvNormRelu : nn::Sequential {
  ConvNormRelu(Group* parent, std::string name, int64_t in, int64_t out, int64_t kernel,
               int64_t stride, int64_t groups)
      : Sequential(parent, std::move(name)) {
    Sequential::add<nn::Conv2d>(in, out, conv(kernel, stride, groups));
    Sequential::add<nn::BatchNorm2d>(out);
    Sequential::add([](const Tensor& x) { return relu6(x); });
  }
};

// Widens, filters each channel by itself, narrows without activation; adds its input where shapes
// agree.
struct InvertedResidual : nn::Module {
  nn::Sequential conv_{this, "conv"};
  const bool adds_input;

  InvertedResidual(Group* parent, std::string name, int64_t in, int64_t out, int64_t stride,
                   int64_t expand)
      : Module(parent, std::move(name)), adds_input(stride == 1 && in == out) {
    const int64_t hidden = in * expand;
    if (expand != 1) conv_.add<ConvNormRelu>(in, hidden, 1, 1, 1);
    conv_.add<ConvNormRelu>(hidden, hidden, 3, stride, hidden);
    conv_.add<nn::Conv2d>(hidden, out, conv(1));
    conv_.add<nn::BatchNorm2d>(out);
  }

  Tensor forward(const Tensor& x) override { return adds_input ? x + conv_(x) : conv_(x); }
};

struct MobileNetV2 : nn::Module {
  nn::Sequential features{this, "features"}, classifier{this, "classifier"};

  explicit MobileNetV2(const Options& o) {
    struct Stage {
      int64_t expand, channels, count, stride;
    };
    const Stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                            {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    int64_t in = scaled(32, o.width);
    const int64_t last = scaled(1280, std::max(1.0, o.width));
    features.add<ConvNormRelu>(o.in_channels, in, 3, 2, 1);
    for (const Stage& s : stages)
      for (int64_t i = 0; i < s.count; ++i) {
        const int64_t out = scaled(double(s.channels), o.width);
        features.add<InvertedResidual>(in, out, i == 0 ? s.stride : 1, s.expand);
        in = out;
      }
    features.add<ConvNormRelu>(in, last, 1, 1, 1);
    classifier.add<nn::Dropout>(o.dropout.value_or(0.2));
    classifier.add<nn::Linear>(
        last, o.classes,
        nn::LinearOptions{.init = nn::init::normal(0, 0.01), .bias_init = nn::init::constant(0)});
  }

  Tensor forward(const Tensor& x) override { return classifier(mean(features(x), {2, 3})); }
};

}  // namespace

std::unique_ptr<nn::Module> make_mobilenet_v2(const Options& o) {
  return std::make_unique<MobileNetV2>(o);
}

}  // namespace cairn::models
