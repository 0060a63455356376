// SPDX-License-Identifier: Apache-2.0
// The bodies of YOLOv5s (Ultralytics, release 6) and YOLOv7 (Wang et al., 2022), each under a classifier over the means of
// its three feature maps: real widths and depths, for benchmarks and as classifiers. Layers bear the numbers that they have in
// the authors' model files, so parameters have their names ("model.2.cv1.conv.weight").
#include <fmt/format.h>

#include "models/models.h"

namespace cairn::models {
namespace {

Tensor means(const Tensor& x) { return mean(x, {2, 3}); }

nn::Conv2dOptions convolution(nn::Pair kernel, int64_t stride, int64_t padding) {
  return {.kernel = kernel, .stride = stride, .padding = padding, .bias = false};
}
constexpr nn::BatchNormOptions kNorm{.epsilon = 1e-3, .momentum = 0.03};

// Convolution, norm, SiLU.
struct Conv : nn::Module {
  nn::Conv2d conv;
  nn::BatchNorm2d bn;
  Conv(Group* parent, std::string name, int64_t in, int64_t out, int64_t kernel = 1, int64_t stride = 1, int64_t padding = -1)
      : Module(parent, std::move(name)),
        conv(this, "conv", in, out, convolution(kernel, stride, padding < 0 ? kernel / 2 : padding)),
        bn(this, "bn", out, kNorm) {}
  Tensor forward(const Tensor& x) override { return silu(bn(conv(x))); }
};

struct Bottleneck : nn::Module {
  Conv cv1, cv2;
  const bool adds_input;
  Bottleneck(Group* parent, std::string name, int64_t channels, bool shortcut)
      : Module(parent, std::move(name)), cv1(this, "cv1", channels, channels), cv2(this, "cv2", channels, channels, 3),
        adds_input(shortcut) {}
  Tensor forward(const Tensor& x) override {
    const Tensor y = cv2(cv1(x));
    return adds_input ? x + y : y;
  }
};

// Half of the channels through a chain of bottlenecks, half past it.
struct C3 : nn::Module {
  Conv cv1, cv2, cv3;
  nn::Sequential m{this, "m"};
  C3(Group* parent, std::string name, int64_t in, int64_t out, int count, bool shortcut = true)
      : Module(parent, std::move(name)), cv1(this, "cv1", in, out / 2), cv2(this, "cv2", in, out / 2), cv3(this, "cv3", out, out) {
    for (int i = 0; i < count; ++i) m.add<Bottleneck>(out / 2, shortcut);
  }
  Tensor forward(const Tensor& x) override { return cv3(concat({m(cv1(x)), cv2(x)}, 1)); }
};

PoolOptions pooling(int64_t kernel, int64_t stride) {
  const int64_t pad = stride == 1 ? kernel / 2 : 0;
  return {.kernel_h = kernel, .kernel_w = kernel, .stride_h = stride, .stride_w = stride, .pad_h = pad, .pad_w = pad};
}

// Maxima over windows of 5, 9 and 13, each made of the one before.
struct SPPF : nn::Module {
  Conv cv1, cv2;
  SPPF(Group* parent, std::string name, int64_t in, int64_t out)
      : Module(parent, std::move(name)), cv1(this, "cv1", in, in / 2), cv2(this, "cv2", in * 2, out) {}
  Tensor forward(const Tensor& x) override {
    const Tensor a = cv1(x), b = max_pool2d(a, pooling(5, 1)), c = max_pool2d(b, pooling(5, 1));
    return cv2(concat({a, b, c, max_pool2d(c, pooling(5, 1))}, 1));
  }
};

// The same in YOLOv7, on one of two ways.
struct SPPCSPC : nn::Module {
  Conv cv1, cv2, cv3, cv4, cv5, cv6, cv7;
  SPPCSPC(Group* parent, std::string name, int64_t in, int64_t out)
      : Module(parent, std::move(name)), cv1(this, "cv1", in, out), cv2(this, "cv2", in, out), cv3(this, "cv3", out, out, 3),
        cv4(this, "cv4", out, out), cv5(this, "cv5", 4 * out, out), cv6(this, "cv6", out, out, 3), cv7(this, "cv7", 2 * out, out) {}
  Tensor forward(const Tensor& x) override {
    const Tensor a = cv4(cv3(cv1(x)));
    const Tensor b = cv5(concat({a, max_pool2d(a, pooling(5, 1)), max_pool2d(a, pooling(9, 1)), max_pool2d(a, pooling(13, 1))}, 1));
    return cv7(concat({cv6(b), cv2(x)}, 1));
  }
};

// A 3 × 3 and a 1 × 1 convolution side by side, as in training.
struct RepConv : nn::Module {
  struct Branch : nn::Sequential {
    Branch(Group* parent, std::string name, int64_t in, int64_t out, int64_t kernel) : Sequential(parent, std::move(name)) {
      Sequential::add<nn::Conv2d>(in, out, convolution(kernel, 1, kernel / 2));
      Sequential::add<nn::BatchNorm2d>(out, kNorm);
    }
  };
  Branch dense, point;
  RepConv(Group* parent, std::string name, int64_t in, int64_t out)
      : Module(parent, std::move(name)), dense(this, "rbr_dense", in, out, 3), point(this, "rbr_1x1", in, out, 1) {}
  Tensor forward(const Tensor& x) override { return silu(dense(x) + point(x)); }
};

// Numbered layers that each read earlier ones; −1 is the one before.
class Body : public nn::Module {
 public:
  explicit Body(const Options& o) : width_(o.width), input_(o.in_channels) {}

  // M(parent, name, in, out, further…) on a layer; `out` is scaled by the width. Returns the number.
  template <class M, class... A>
  int add(int from, int64_t out, A... further) {
    const int64_t channels = scaled(double(out), width_);
    auto module = std::make_unique<M>(&model_, std::to_string(layers_.size()), channels_of(from), channels, further...);
    M* m = module.get();
    modules_.push_back(std::move(module));
    return layer({from}, channels, [m](const auto& in) { return (*m)(in[0]); });
  }
  int upsample(int from) {
    return layer({from}, channels_of(from), [](const auto& in) {
      return resize2d(in[0], 2 * in[0].shape()[2], 2 * in[0].shape()[3], ResizeMode::nearest);
    });
  }
  int pool(int from) {
    return layer({from}, channels_of(from), [](const auto& in) { return max_pool2d(in[0], pooling(2, 2)); });
  }
  int join(const std::vector<int>& from) {
    int64_t channels = 0;
    for (int f : from) channels += channels_of(f);
    return layer(from, channels, [](const auto& in) { return concat(in, 1); });
  }
  // The classifier over the means of these layers.
  void finish(const std::vector<int>& maps, int64_t classes) {
    int64_t channels = 0;
    for (int m : maps) channels += channels_of(m);
    maps_ = maps;
    fc_ = std::make_unique<nn::Linear>(this, "fc", channels, classes);
  }
  int last() const { return int(layers_.size()) - 1; }

  Tensor forward(const Tensor& x) override {
    if (x.shape()[2] % 32 != 0 || x.shape()[3] % 32 != 0)
      fail(ErrorCode::shape_mismatch, fmt::format("model: a picture of {}x{}, expected multiples of 32", x.shape()[3], x.shape()[2]));
    std::vector<Tensor> made;
    for (const Layer& l : layers_) {
      std::vector<Tensor> in;
      for (int f : l.from) in.push_back(f < 0 ? x : made[size_t(f)]);
      made.push_back(l.run(in));
    }
    std::vector<Tensor> features;
    for (int m : maps_) features.push_back(means(made[size_t(m)]));
    return (*fc_)(concat(features, 1));
  }

 private:
  using Run = std::function<Tensor(const std::vector<Tensor>&)>;
  struct Layer {
    std::vector<int> from;  // −1: the picture
    int64_t channels;
    Run run;
  };
  int absolute(int from) const { return from < 0 ? int(layers_.size()) + from : from; }
  int64_t channels_of(int from) const { return absolute(from) < 0 ? input_ : layers_[size_t(absolute(from))].channels; }
  int layer(std::vector<int> from, int64_t channels, Run run) {
    for (int& f : from) f = absolute(f);
    layers_.push_back({std::move(from), channels, std::move(run)});
    return last();
  }

  const double width_;
  const int64_t input_;
  Group model_{this, "model"};
  std::vector<std::unique_ptr<Group>> modules_;
  std::vector<Layer> layers_;
  std::vector<int> maps_;
  std::unique_ptr<nn::Linear> fc_;
};

// YOLOv7's block: two ways of 1 × 1, then a chain of four 3 × 3, of which every `kept`-th is joined with them.
int elan(Body& b, int from, int64_t ways, int64_t chain, int kept, int64_t out) {
  if (from < 0) from = b.last();
  const int first = b.add<Conv>(from, ways), second = b.add<Conv>(from, ways);
  std::vector<int> join;
  for (int i = 1; i <= 4; ++i)
    if (const int made = b.add<Conv>(-1, chain, 3); i % kept == 0) join.insert(join.begin(), made);
  join.insert(join.end(), {second, first});
  b.join(join);
  return b.add<Conv>(-1, out);
}

// YOLOv7's halving: a pooled way beside a strided one, and what is given besides.
int halve(Body& b, int64_t channels, std::vector<int> besides = {}) {
  const int from = b.last();
  b.pool(from);
  const int pooled = b.add<Conv>(-1, channels);
  b.add<Conv>(from, channels);
  std::vector<int> join{b.add<Conv>(-1, channels, 3, 2), pooled};
  join.insert(join.end(), besides.begin(), besides.end());
  return b.join(join);
}

}  // namespace

std::unique_ptr<nn::Module> make_yolov5s_body(const Options& o) {
  auto body = std::make_unique<Body>(o);
  Body& b = *body;
  b.add<Conv>(-1, 32, 6, 2, 2);
  b.add<Conv>(-1, 64, 3, 2);
  b.add<C3>(-1, 64, 1);
  b.add<Conv>(-1, 128, 3, 2);
  const int p3 = b.add<C3>(-1, 128, 2);
  b.add<Conv>(-1, 256, 3, 2);
  const int p4 = b.add<C3>(-1, 256, 3);
  b.add<Conv>(-1, 512, 3, 2);
  b.add<C3>(-1, 512, 1);
  b.add<SPPF>(-1, 512);

  const int top = b.add<Conv>(-1, 256);
  b.upsample(-1);
  b.join({-1, p4});
  b.add<C3>(-1, 256, 1, false);
  const int middle = b.add<Conv>(-1, 128);
  b.upsample(-1);
  b.join({-1, p3});
  const int small = b.add<C3>(-1, 128, 1, false);
  b.add<Conv>(-1, 128, 3, 2);
  b.join({-1, middle});
  const int medium = b.add<C3>(-1, 256, 1, false);
  b.add<Conv>(-1, 256, 3, 2);
  b.join({-1, top});
  const int large = b.add<C3>(-1, 512, 1, false);
  b.finish({small, medium, large}, o.classes);
  return body;
}

std::unique_ptr<nn::Module> make_yolov7_body(const Options& o) {
  auto body = std::make_unique<Body>(o);
  Body& b = *body;
  b.add<Conv>(-1, 32, 3);
  b.add<Conv>(-1, 64, 3, 2);
  b.add<Conv>(-1, 64, 3);
  b.add<Conv>(-1, 128, 3, 2);
  elan(b, -1, 64, 64, 2, 256);
  halve(b, 128);
  const int p3 = elan(b, -1, 128, 128, 2, 512);
  halve(b, 256);
  const int p4 = elan(b, -1, 256, 256, 2, 1024);
  halve(b, 512);
  elan(b, -1, 256, 256, 2, 1024);

  const int top = b.add<SPPCSPC>(-1, 512);
  b.add<Conv>(-1, 256);
  const int up4 = b.upsample(-1);
  b.join({b.add<Conv>(p4, 256), up4});
  const int middle = elan(b, -1, 256, 128, 1, 256);
  b.add<Conv>(-1, 128);
  const int up3 = b.upsample(-1);
  b.join({b.add<Conv>(p3, 128), up3});
  const int small = elan(b, -1, 128, 64, 1, 128);
  halve(b, 128, {middle});
  const int medium = elan(b, -1, 256, 128, 1, 256);
  halve(b, 256, {top});
  const int large = elan(b, -1, 512, 256, 1, 512);
  const int small_out = b.add<RepConv>(small, 256), medium_out = b.add<RepConv>(medium, 512);
  b.finish({small_out, medium_out, b.add<RepConv>(large, 1024)}, o.classes);
  return body;
}

}  // namespace cairn::models
