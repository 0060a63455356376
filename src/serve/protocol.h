// SPDX-License-Identifier: Apache-2.0
// The v2 infer messages: request bytes → checked tensors, and outputs → answer bytes.
//
// Beyond the protocol's text: data may be flat or nested exactly as the shape; numbers are accepted
// for FP16 and BF16; NaN, Infinity and -Infinity are accepted as bare tokens or as strings, and
// written as strings so that every answer is valid JSON.
#pragma once
#include <cairn/serve.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::serve {

struct Body {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

// The request headers that say how the body is to be read; a view is empty when there is no such
// header.
struct InferHeaders {
  std::string_view json_size;     // Inference-Header-Content-Length
  std::string_view content_type;  // "image/..." makes the whole body one picture
  std::string_view accept;        // "application/json" asks for a JSON answer to a raw request
};

struct WantedOutput {
  size_t index = 0;     // in ModelInfo::outputs
  bool binary = false;  // raw after the JSON, or as numbers in it
  int64_t classes = 0;  // > 0: the highest entries as "value:index[:label]" strings instead
};

struct InferRequest {
  std::string id;
  std::vector<Blob> inputs;  // one for each declared input, in the model's order
  std::vector<WantedOutput> outputs;
  std::optional<std::chrono::microseconds> timeout;  // how long it may wait for its turn
};

// Reads a request for this model. Three forms: JSON; JSON of `json_size` bytes and then raw
// tensors; and `json_size` 0 or a picture's content type: the body is the only input, raw. Tensors
// are views into the body where that can be. Throws cairn::Error for whatever does not fit the
// protocol or the model.
InferRequest parse_infer(const ModelInfo& info, const Body& body, const InferHeaders& headers);

struct InferAnswer {
  std::string json;
  std::vector<Blob> binary;  // follow the JSON, in order; if any, json.size() goes into the header
};

// Writes what the request asked for; `outputs` are the model's, checked. Throws invalid_argument
// for BYTES that are not UTF-8 when they are asked for as JSON.
InferAnswer write_infer(const ModelInfo& info, const InferRequest& request,
                        std::span<const Blob> outputs);

std::string metadata_json(const ModelInfo& info, std::span<const std::string> versions);
std::string config_json(const ModelInfo& info);
std::string error_json(std::string_view message);

}  // namespace cairn::serve
