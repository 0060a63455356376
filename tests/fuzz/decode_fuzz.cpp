// SPDX-License-Identifier: Apache-2.0
// Feeds the picture decoder what libFuzzer makes up: it must refuse with an Error, or give a whole picture.
#include <cstdlib>

#include "data/decode.h"
#include "data/transform.h"

using namespace cairn;
using namespace cairn::data;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static const Transform transform("rgb,resize=24,normalize=0.5:0.25");
  try {
    Decoded d = decode(bytes, Color::rgb, {.max_pixels = 1 << 20, .max_memory = 64 << 20});
    unsigned sum = 0;  // reads every byte, so that a missing one is noticed
    for (size_t i = 0; i < d.picture.bytes(); ++i) sum += d.picture.row(0)[i];
    const Picture p = apply_fixed(transform, std::move(d.picture));
    float out[3 * 24 * 24];
    write_planes(transform, p, out);
    if (p.width() != 24 || sum > d.picture.bytes() * 255) std::abort();
  } catch (const Error& e) {
    if (e.code() == ErrorCode::internal) std::abort();
  }
  return 0;
}
