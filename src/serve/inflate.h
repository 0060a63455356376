// SPDX-License-Identifier: Apache-2.0
// Decompression of request bodies (Content-Encoding gzip and deflate), with a limit against bombs.
#pragma once
#include <cstddef>
#include <optional>

#include "serve/protocol.h"

namespace cairn::serve {

// The body in the clear, or nothing when it would be larger than `limit` bytes. Throws parse when
// it is not whole, valid gzip or zlib data. Byte `aligned_at` lies on a 64-byte boundary.
std::optional<Body> decompress(const Body& body, size_t limit, size_t aligned_at);

}  // namespace cairn::serve
