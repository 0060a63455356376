// SPDX-License-Identifier: Apache-2.0
// Residual networks (He et al., "Deep residual learning for image recognition", 2015), version 1.5:
// the stride of a bottleneck stands in its 3×3 convolution.
#include "models/models.h"

namespace cairn::models {
namespace {

nn::Conv2dOptions conv(int64_t kernel, int64_t stride = 1) {
  return {.kernel = kernel,
          .stride = stride,
          .padding = kernel / 2,
          .bias = false,
          .init = nn::init::kaiming_normal(nn::init::Fan::out)};
}

// The way around a block: projects when the shape changes.
std::unique_ptr<nn::Sequential> shortcut(nn::Group* block, int64_t in, int64_t out,
                                         int64_t stride) {
  if (stride == 1 && in == out) return nullptr;
  auto path = std::make_unique<nn::Sequential>(block, "downsample");
  path->add<nn::Conv2d>(in, out, conv(1, stride));
  path->add<nn::BatchNorm2d>(out);
  return path;
}

struct BasicBlock : nn::Module {
  static constexpr int64_t kExpansion = 1;
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  std::unique_ptr<nn::Sequential> downsample;

  BasicBlock(Group* parent, std::string name, int64_t in, int64_t width, int64_t stride)
      : Module(parent, std::move(name)),
        conv1(this, "conv1", in, width, conv(3, stride)),
        bn1(this, "bn1", width),
        conv2(this, "conv2", width, width, conv(3)),
        bn2(this, "bn2", width),
        downsample(shortcut(this, in, width, stride)) {}

  Tensor forward(const Tensor& x) override {
    const Tensor y = bn2(conv2(relu(bn1(conv1(x)))));
    return relu(y + (downsample ? (*downsample)(x) : x));
  }
};

struct Bottleneck : nn::Module {
  static constexpr int64_t kExpansion = 4;
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Conv2d conv3;
  nn::BatchNorm2d bn3;
  std::unique_ptr<nn::Sequential> downsample;

  Bottleneck(Group* parent, std::string name, int64_t in, int64_t width, int64_t stride)
      : Module(parent, std::move(name)),
        conv1(this, "conv1", in, width, conv(1)),
        bn1(this, "bn1", width),
        conv2(this, "conv2", width, width, conv(3, stride)),
        bn2(this, "bn2", width),
        conv3(this, "conv3", width, width * kExpansion, conv(1)),
        bn3(this, "bn3", width * kExpansion),
        downsample(shortcut(this, in, width * kExpansion, stride)) {}

  Tensor forward(const Tensor& x) override {
    const Tensor y = bn3(conv3(relu(bn2(conv2(relu(bn1(conv1(x))))))));
    return relu(y + (downsample ? (*downsample)(x) : x));
  }
};

template <class Block>
struct ResNet : nn::Module {
  const bool small_input;
  const int64_t base;
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1{this, "bn1", base};
  nn::Sequential layer1{this, "layer1"}, layer2{this, "layer2"}, layer3{this, "layer3"},
      layer4{this, "layer4"};
  nn::Linear fc;

  ResNet(const std::array<int, 4>& blocks, const Options& o)
      : small_input(o.small_input),
        base(scaled(64, o.width)),
        conv1(this, "conv1", o.in_channels, base, small_input ? conv(3) : conv(7, 2)),
        fc(this, "fc", base * 8 * Block::kExpansion, o.classes) {
    int64_t in = base, width = base;
    const auto stage = [&](nn::Sequential& layer, int count, int64_t stride) {
      for (int i = 0; i < count; ++i) {
        layer.add<Block>(in, width, i == 0 ? stride : 1);
        in = width * Block::kExpansion;
      }
      width *= 2;
    };
    stage(layer1, blocks[0], 1);
    stage(layer2, blocks[1], 2);
    stage(layer3, blocks[2], 2);
    stage(layer4, blocks[3], 2);
  }

  Tensor forward(const Tensor& x) override {
    Tensor y = relu(bn1(conv1(x)));
    if (!small_input)
      y = max_pool2d(
          y, {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1});
    y = layer4(layer3(layer2(layer1(y))));
    return fc(mean(y, {2, 3}));
  }
};

}  // namespace

std::unique_ptr<nn::Module> make_resnet(int depth, const Options& o) {
  switch (depth) {
    case 18:
      return std::make_unique<ResNet<BasicBlock>>(std::array{2, 2, 2, 2}, o);
    case 34:
      return std::make_unique<ResNet<BasicBlock>>(std::array{3, 4, 6, 3}, o);
    case 50:
      return std::make_unique<ResNet<Bottleneck>>(std::array{3, 4, 6, 3}, o);
    case 101:
      return std::make_unique<ResNet<Bottleneck>>(std::array{3, 4, 23, 3}, o);
    case 152:
      return std::make_unique<ResNet<Bottleneck>>(std::array{3, 8, 36, 3}, o);
    default:
      CAIRN_CHECK(false, "no such ResNet");
      return nullptr;
  }
}

}  // namespace cairn::models
