// SPDX-License-Identifier: Apache-2.0
// Pictures of a request, decoded straight into their rows of the batch.
#include "serve/picture.h"

#include <fmt/format.h>

#include <new>

#include "data/decode.h"
#include "data/transform.h"

namespace cairn::serve {

Blob decode_pictures(const Blob& encoded, const data::Transform& transform,
                     const data::Limits& limits) {
  const data::Transform eval = transform.eval();
  const auto size = eval.output_size();
  if (!size)
    fail(
        ErrorCode::invalid_argument,
        fmt::format("serve: the recipe '{}' gives each picture another size, so they make no batch",
                    eval.recipe()),
        "End the model's recipe with resize or center_crop");
  const auto files = strings(encoded);
  const std::vector<int64_t> shape{int64_t(files.size()), eval.channels(), size->height,
                                   size->width};
  const size_t floats = size_t(element_count(shape)),
               one = floats / std::max<size_t>(files.size(), 1);
  const std::shared_ptr<float> out(new (std::align_val_t(64)) float[floats],
                                   [](float* p) { ::operator delete[](p, std::align_val_t(64)); });
  for (size_t i = 0; i < files.size(); ++i) {
    try {
      data::Decoded decoded = data::decode(files[i], eval.plan().color, limits);
      data::write_planes(eval, data::apply_fixed(eval, std::move(decoded.picture)),
                         out.get() + i * one);
    } catch (const Error& error) {
      fail(ErrorCode::invalid_argument,
           fmt::format("request: picture {} of {}: {}", i, files.size(), error.message()),
           error.hint());
    }
  }
  return {DataType::f32, shape, std::as_bytes(std::span(out.get(), floats)), out};
}

}  // namespace cairn::serve
