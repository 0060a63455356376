// SPDX-License-Identifier: Apache-2.0
// What the registry knows of each family of models.
#pragma once
#include <cairn/models.h>

namespace cairn::models {

// Channels scaled by a width, to a multiple of 8 and not more than 10 % below (torchvision's rule).
int64_t scaled(double channels, double width);

std::unique_ptr<nn::Module> make_resnet(int depth, const Options& options);
std::unique_ptr<nn::Module> make_mobilenet_v2(const Options& options);
std::unique_ptr<nn::Module> make_yolov5s_body(const Options& options);
std::unique_ptr<nn::Module> make_yolov7_body(const Options& options);
std::unique_ptr<nn::Module> make_lenet(const Options& options);
std::unique_ptr<nn::Module> make_mlp(const Options& options);

}  // namespace cairn::models
