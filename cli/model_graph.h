// SPDX-License-Identifier: Apache-2.0
// From what a user names (a model, an .onnx file, a graph text) to a graph for inference.
#pragma once
#include <cairn/graph.h>
#include <cairn/onnx.h>

namespace cairn::cli {

struct GraphOptions {
  int64_t batch = 1, imgsz = 224, classes = 1000;
};
GraphPtr load_graph(const std::string& input, const GraphOptions& options);
// The graph of a model whose inputs are free in the batch alone.
GraphPtr onnx_graph(const onnx::Model& model, int64_t batch);

}  // namespace cairn::cli
