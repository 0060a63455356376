// SPDX-License-Identifier: Apache-2.0
// Ready models by name, with torchvision's parameter names and first values.
#pragma once
#include <cairn/nn.h>

namespace cairn::models {

struct Options {
  int64_t classes = 1000;
  int64_t in_channels = 3;
  double width = 1;  // multiplies every layer's channels (rounded to multiples of 8, at least 8)
  bool small_input =
      false;  // ResNets: a 3×3 stem without stride or pooling, for pictures below 64 pixels
  std::optional<double> dropout = {};  // before the classifier of MobileNetV2; 0.2 when not given
  int64_t input_size = 32;             // LeNet and MLP alone: the side of the square picture
  uint64_t seed = 0;                   // of the first values
  DType dtype = DType::f32;
  bool draw = true;  // false: leave first values out, for weights that come from a file
};

// resnet18 resnet34 resnet50 resnet101 resnet152 mobilenet_v2 yolov5s_body yolov7_body lenet mlp
CAIRN_API std::vector<std::string> names();

// throws not_found for an unknown name (listing those there are), invalid_argument for options that
// make no model.
CAIRN_API std::unique_ptr<nn::Module> make(std::string_view name, const Options& options = {});

// The part that depends on the number of classes, "fc" or "classifier": what fine-tuning resets.
CAIRN_API std::string head(std::string_view name);

}  // namespace cairn::models
