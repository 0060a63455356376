// SPDX-License-Identifier: Apache-2.0
// Trainer::write_onnx; it is here because convert stands above train.
#include <cairn/onnx.h>
#include <cairn/train.h>

#include "ops/context.h"

namespace cairn::train {

void Trainer::write_onnx(const std::filesystem::path& file) {
  const ModelInfo about = info();
  if (about.input_shape.rank() == 0)
    fail(ErrorCode::invalid_argument,
         "onnx: the trainer has seen no data, so the input's shape is not known",
         "Call fit() or evaluate() first");
  Shape shape = about.input_shape;
  shape.insert(0, 1);
  const Function model = [&](const std::vector<Tensor>& in) {
    const TrainingScope evaluation(false);
    const Tensor y = net()(in[0]);
    return about.classifies ? std::vector{softmax(y), y} : std::vector{y};
  };
  const std::vector<std::string> outputs = about.classifies
                                               ? std::vector<std::string>{"probabilities", "logits"}
                                               : std::vector<std::string>{"output"};
  with_averages([&] {
    onnx::write(file, model, {{DType::f32, shape}}, {"image"}, outputs,
                {.task = about.classifies ? "classify" : "regress",
                 .transform = about.transform,
                 .labels = about.classes});
  });
}

}  // namespace cairn::train
