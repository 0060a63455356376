// SPDX-License-Identifier: Apache-2.0
// From what a user names (a model, an .onnx file, a graph text) to a graph; and the training step that
// `debug step` and `bench train` share with `opt`.
#pragma once
#include <cairn/graph.h>

namespace cairn::cli {

struct GraphOptions {
  int64_t batch = 1, imgsz = 224, classes = 1000;
  bool train = false;
};
GraphPtr load_graph(const std::string& input, const GraphOptions& options);

}  // namespace cairn::cli
