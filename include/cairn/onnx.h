// SPDX-License-Identifier: Apache-2.0
// ONNX files (opset 17, IR 8): deployed models, with task, preprocessing and labels in their metadata.
#pragma once
#include <cairn/graph.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace cairn::onnx {

// What a deployed model says of itself, stored as metadata_props "cairn.task", "cairn.transform",
// "cairn.labels" (a JSON list) and whatever stands in `extra`.
struct Metadata {
  std::string task = "classify";
  std::string transform;            // data::Transform recipe from a picture to the model's input; may be empty
  std::vector<std::string> labels;  // of the last output axis; may be empty
  std::map<std::string, std::string> extra;
};

// Writes the model that `function` computes, with the values that its Variables have now as initializers.
// It is traced at two batch sizes (axis 0 of every input): dimensions that follow the batch become the
// symbolic "N"; where one is fixed although it should follow, the error says at which call. Operators without
// an ONNX form are decomposed. The file appears whole or not at all. throws unsupported with operator and line.
//   inputs: types at batch 1; names: of inputs and outputs.
CAIRN_API void write(const std::filesystem::path& path, const Function& function, const std::vector<TensorType>& inputs,
                     const std::vector<std::string>& input_names, const std::vector<std::string>& output_names,
                     const Metadata& metadata = {});

struct Port {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  // -1: any size
};

// A model file, read and checked: a value, cheap to copy, safe to share. Everything in it is treated as
// hostile: sizes are checked before anything is allocated, external data is refused.
class CAIRN_API Model {
 public:
  static Model read(const std::filesystem::path& path);       // throws not_found, parse, unsupported
  static Model parse(std::string_view bytes, const std::string& name = "model");
  const Metadata& metadata() const;
  const std::vector<Port>& inputs() const;
  const std::vector<Port>& outputs() const;
  // The graph for concrete input types, weights as constants. throws shape_mismatch when they do not fit the
  // ports, unsupported naming the node when an operator is not known.
  GraphPtr graph(const std::vector<TensorType>& input_types) const;

  struct State;  // convert/onnx_read.cpp

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace cairn::onnx
