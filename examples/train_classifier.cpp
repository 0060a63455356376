// SPDX-License-Identifier: Apache-2.0
// A complete program to copy: train a small network on folders of pictures, evaluate it, export it.
//
//   train_classifier pictures/ model.onnx [epochs]
#include <cairn/cairn.h>

#include <cstdlib>
#include <iostream>

using namespace cairn;

// Three convolutions with batch norm, global average pooling, one linear layer.
struct Net : nn::Module {
  Net(int64_t channels, int64_t classes)
      : conv1{this, "conv1", channels, 16, {.kernel = 3, .stride = 2, .padding = 1, .bias = false}},
        norm1{this, "norm1", 16},
        conv2{this, "conv2", 16, 32, {.kernel = 3, .stride = 2, .padding = 1, .bias = false}},
        norm2{this, "norm2", 32},
        conv3{this, "conv3", 32, 64, {.kernel = 3, .stride = 2, .padding = 1, .bias = false}},
        norm3{this, "norm3", 64},
        head{this, "head", 64, classes} {}

  Tensor forward(const Tensor& x) override {
    Tensor y = relu(norm1(conv1(x)));
    y = relu(norm2(conv2(y)));
    y = relu(norm3(conv3(y)));
    return head(mean(y, {2, 3}));
  }

  nn::Conv2d conv1;
  nn::BatchNorm2d norm1;
  nn::Conv2d conv2;
  nn::BatchNorm2d norm2;
  nn::Conv2d conv3;
  nn::BatchNorm2d norm3;
  nn::Linear head;
};

int run(const std::string& folder, const std::string& target, int64_t epochs) {
  const data::Dataset pictures = data::open(folder);
  const auto [train_set, test_set] = pictures.split({.train = 0.75, .seed = 1});
  const data::Transform transform("grey,resize=64,hflip,vflip,normalize=0.5:0.25");

  Net net(transform.channels(), int64_t(pictures.classes().size()));
  train::Trainer trainer{net, loss::cross_entropy(), optim::momentum({.lr = 0.05, .weight_decay = 5e-4})};
  train::FitOptions options{.epochs = epochs, .schedule = optim::parse_schedule("cosine:warmup=1")};
  options.on_progress = [](const train::Progress& p) {
    if (p.batch == p.batches) std::cerr << "epoch " << p.epoch + 1 << " loss " << p.loss << "\n";
  };
  trainer.fit(train_set.map(transform).batch(32, {.shuffle = true, .seed = 1}), options);
  std::cout << trainer.evaluate(test_set.map(transform.eval()).batch(64)).table();
  trainer.write_onnx(target);
  std::cout << "wrote " << target << "\n";
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: train_classifier PICTURES MODEL.onnx [EPOCHS]\n";
    return 2;
  }
  try {
    return run(argv[1], argv[2], argc > 3 ? std::atoll(argv[3]) : 10);
  } catch (const Error& e) {
    std::cerr << e.what() << "\n";
    return exit_code(e.code());
  }
}
