// SPDX-License-Identifier: Apache-2.0
// Encoded pictures in a request → the tensor that the model computes on, as in training and
// predict.
#pragma once
#include <cairn/data.h>
#include <cairn/serve.h>

namespace cairn::serve {

// Decodes each element of a BYTES [n] tensor (JPEG or PNG) and puts it through transform.eval();
// gives FP32 [n, C, H, W], 64-byte aligned, with the bits that data::decode_picture gives. The
// transform's output size must not depend on the picture. One bad picture refuses the request:
// throws invalid_argument that says which and why. `limits` guard each decode; one is held at a
// time.
Blob decode_pictures(const Blob& encoded, const data::Transform& transform,
                     const data::Limits& limits = {.max_pixels = 50'000'000,
                                                   .max_memory = 512 << 20});

}  // namespace cairn::serve
