// SPDX-License-Identifier: Apache-2.0
// Lesson 5: from a folder of pictures to an ONNX file, and back.
#include <cairn/cairn.h>
#include <cairn/onnx.h>

#include <iostream>

using namespace cairn;

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cout << "usage: 5_pictures PICTURES   (cairn data make --count 60 --size 64 --out PICTURES draws some)\n";
    return 0;
  }
  try {
    const auto pictures = data::image_folder(argv[1]);
    const auto [train_set, test_set] = pictures.split({.train = 0.75, .seed = 1});
    const data::Transform look("grey,resize=32,hflip,normalize=0.5:0.25");
    const auto net = models::make("lenet", {.classes = int64_t(pictures.classes().size()), .in_channels = 1, .input_size = 32});
    train::Trainer trainer{*net, loss::cross_entropy(), optim::momentum({.lr = 0.02})};
    trainer.fit(train_set.map(look).batch(8, {.shuffle = true}), {.epochs = 2});
    std::cout << trainer.evaluate(test_set.map(look.eval()).batch(8)).table();
    trainer.write_onnx("tour.onnx");
    const auto model = onnx::Model::read("tour.onnx");
    std::cout << "preprocessing in the file: " << model.metadata().transform << "\n";
    const Tensor picture = data::load_picture(pictures.records()[0].path, model.metadata().transform);
    Plan plan(model.graph({picture.type()}));
    std::cout << pictures.records()[0].key << ": " << plan.run({picture})[0].to_string() << "\n";
  } catch (const Error& e) {
    std::cerr << e.what() << "\n";
    return exit_code(e.code());
  }
}
