// SPDX-License-Identifier: Apache-2.0
// Feeds the v2 infer codec: an Error that is not our fault, or tensors that fit the model and an
// answer that is JSON.
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "serve/engine.h"
#include "serve/inflate.h"
#include "serve/protocol.h"

using namespace cairn;
using namespace cairn::serve;

namespace {

// Every datatype as an input and as an output; the models differ in which.
std::vector<ModelInfo> models() {
  std::vector<ModelInfo> all;
  for (int t = 0; t <= int(DataType::bytes); ++t) {
    ModelInfo m{.name = "m"};
    m.inputs = {{"x", DataType(t), {-1, 2}}};
    m.outputs = {{"y", DataType(t), {-1, 2}, false, {"a", "b"}}};
    all.push_back(m);
  }
  ModelInfo picture{.name = "p", .max_batch = 4};
  picture.inputs = {{"x", DataType::f32, {-1, 1, 2, 2}, true}, {"z", DataType::bytes, {-1}}};
  picture.outputs = {{"y", DataType::f32, {-1}}};
  all.push_back(picture);
  picture.inputs.pop_back();
  all.push_back(picture);
  return all;
}

void require(bool good) {
  if (!good) std::abort();
}

void check_inputs(const ModelInfo& info, const InferRequest& request) {
  require(request.inputs.size() == info.inputs.size() && !request.outputs.empty());
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const Blob& in = request.inputs[i];
    require(check_input(info, info.inputs[i].name, in.datatype, in.shape) == i);
    const size_t count = size_t(element_count(in.shape));
    if (in.datatype == DataType::bytes) {
      require(strings(in).size() == count);
    } else {
      require(in.bytes.size() == count * item_size(in.datatype));
      require(reinterpret_cast<uintptr_t>(in.bytes.data()) % item_size(in.datatype) == 0);
    }
    uint8_t sum = 0;  // touch every byte, for the address sanitiser
    for (const std::byte b : in.bytes) sum ^= uint8_t(b);
    volatile uint8_t sink = sum;
    (void)sink;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<ModelInfo> all = models();
  if (size < 3) return 0;
  const ModelInfo& info = all[data[0] % all.size()];
  const size_t json_size = data[1] | data[2] << 8;
  const int form = data[0] / 17 % 5;
  auto owner = std::make_shared<std::vector<uint8_t>>(data + 3, data + size);
  Body body{std::as_bytes(std::span(*owner)), owner};
  const std::string length = std::to_string(json_size);
  try {
    if (form == 4) {
      const auto clear = decompress(body, 1 << 16, json_size);
      if (!clear) return 0;
      require(clear->bytes.size() <= 1 << 16);
      body = *clear;
    }
    const InferRequest request =
        parse_infer(info, body,
                    {.json_size = form == 1   ? std::string_view(length)
                                  : form == 2 ? std::string_view("0")
                                              : std::string_view(),
                     .content_type = form == 3 ? "image/png" : "application/json"});
    check_inputs(info, request);
    if (info.max_batch > 0) return 0;
    const InferAnswer answer = write_infer(info, request, request.inputs);  // an echo
    require(nlohmann::json::accept(answer.json));
  } catch (const Error& e) {
    require(e.code() != ErrorCode::internal && e.message().size() < 2000);
  }
  return 0;
}
