// SPDX-License-Identifier: Apache-2.0
#include "cli/model_graph.h"

#include <cairn/models.h>
#include <cairn/onnx.h>

#include "base/file.h"
#include "ir/graph.h"
#include "ops/context.h"

namespace cairn::cli {

GraphPtr load_graph(const std::string& input, const GraphOptions& o) {
  const std::filesystem::path path(input);
  if (path.extension() == ".onnx") return onnx_graph(onnx::Model::read(path), o.batch);
  if (std::filesystem::exists(path)) return parse_graph(read_file(path, size_t(1) << 30));
  const auto net = models::make(input, {.classes = o.classes});
  TrainingScope evaluation(false);
  const auto traced = trace([&](const std::vector<Tensor>& in) { return std::vector{(*net)(in[0])}; },
                            {{DType::f32, {o.batch, 3, o.imgsz, o.imgsz}}}, {"image"}, input);
  auto frozen = std::make_shared<Graph>(*traced);
  freeze_variables(*frozen);
  return frozen;
}

GraphPtr onnx_graph(const onnx::Model& model, int64_t batch) {
  std::vector<TensorType> types;
  for (const auto& port : model.inputs()) {
    TensorType type{port.dtype, {}};
    for (size_t i = 0; i < port.shape.size(); ++i) {
      if (port.shape[i] < 0 && i > 0)
        fail(ErrorCode::invalid_argument, "input " + port.name + " has free dimensions beside the batch",
             "Give the inputs themselves with `cairn run`");
      type.shape.push_back(port.shape[i] < 0 ? batch : port.shape[i]);
    }
    types.push_back(type);
  }
  return model.graph(types);
}

}  // namespace cairn::cli
