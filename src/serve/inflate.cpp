// SPDX-License-Identifier: Apache-2.0
// Bounded inflation with zlib, which tells gzip from zlib by the first bytes.
#include "serve/inflate.h"

#include <cairn/error.h>
#include <zlib.h>

#include <algorithm>
#include <memory>
#include <new>

namespace cairn::serve {
namespace {

std::shared_ptr<std::byte> allocate(size_t size) {
  return {static_cast<std::byte*>(::operator new(size, std::align_val_t(64))),
          [](std::byte* p) { ::operator delete(p, std::align_val_t(64)); }};
}

}  // namespace

std::optional<Body> decompress(const Body& body, size_t limit, size_t aligned_at) {
  z_stream z{};
  if (inflateInit2(&z, 15 + 32) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_streamp)> at_end(&z, inflateEnd);

  const size_t shift = (64 - aligned_at % 64) % 64;
  // One byte more than allowed shows that there is too much.
  size_t capacity = std::min(limit + 1, std::max<size_t>(4 * body.bytes.size(), 4096));
  size_t size = 0, read = 0;
  std::shared_ptr<std::byte> out = allocate(capacity + 64);
  constexpr size_t kStep = size_t(1) << 30;  // zlib counts in 32 bits
  while (true) {
    z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(body.bytes.data())) + read;
    z.next_out = reinterpret_cast<Bytef*>(out.get() + shift + size);
    const uInt in = z.avail_in = uInt(std::min(body.bytes.size() - read, kStep));
    const uInt room = z.avail_out = uInt(std::min(capacity - size, kStep));
    const int status = inflate(&z, Z_NO_FLUSH);
    read += in - z.avail_in;
    size += room - z.avail_out;
    if (size > limit) return std::nullopt;
    if (status == Z_STREAM_END && read == body.bytes.size()) break;
    if (size == capacity && (status == Z_OK || status == Z_BUF_ERROR)) {
      capacity = std::min(limit + 1, 2 * capacity);
      std::shared_ptr<std::byte> grown = allocate(capacity + 64);
      std::copy_n(out.get() + shift, size, grown.get() + shift);
      out = std::move(grown);
    } else if (status != Z_OK) {
      fail(ErrorCode::parse, "request: the body is not whole, valid compressed data",
           "Content-Encoding must say how the body is compressed: gzip or deflate");
    }
  }
  return Body{{out.get() + shift, size}, out};
}

}  // namespace cairn::serve
