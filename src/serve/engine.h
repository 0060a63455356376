// SPDX-License-Identifier: Apache-2.0
// ONNX → ready model, behind its contract: what holds before and after Model::infer, in any protocol. The
// model itself is made in onnx_model.cpp.
#pragma once
#include <cairn/serve.h>

#include <string>
#include <string_view>

namespace cairn::serve {

// Throws invalid_argument when a model cannot be served under what it says of itself: an empty or
// repeated name, a version that is not digits, a shape with dimensions below -1.
void check_info(const ModelInfo& info);

// The index of the declared input that a request's tensor is for; throws when the name, the
// datatype or the shape does not fit (a picture input also takes BYTES [n]). To be called before
// the data are read, so that a request's size is bounded by what the model takes.
size_t check_input(const ModelInfo& info, std::string_view input, DataType datatype,
                   std::span<const int64_t> shape);

// The index of the declared output of that name; throws invalid_argument when there is none.
size_t check_output_name(const ModelInfo& info, std::string_view output);

// All declared inputs are given (an input that is not has no owner), and share one batch size.
void check_complete(const ModelInfo& info, std::span<const Blob> inputs);

// The batch size of checked inputs; 1 where the model has no batch dimension.
int64_t batch_of(const ModelInfo& info, std::span<const Blob> inputs);

// Model::infer with its promise checked: throws `internal` when the outputs are not what info()
// says.
std::vector<Blob> run(Model& model, std::span<const Blob> inputs);

// A name from a request as an error may show it: quoted, at most 100 bytes.
std::string shown(std::string_view name);
std::string shown(std::span<const int64_t> shape);  // "[2,3]"

}  // namespace cairn::serve
