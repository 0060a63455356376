// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli): the checksum of TFRecord framing and of our tensors in safetensors files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cairn {

// The checksum of `bytes`. To go on over pieces, pass the checksum so far:
// crc32c(b, crc32c(a)) == crc32c(ab). Uses the CPU's own instruction where there is one.
uint32_t crc32c(std::string_view bytes, uint32_t so_far = 0);

// As TFRecord stores it, so that a CRC over data that holds CRCs stays meaningful.
constexpr uint32_t mask_crc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

namespace detail {
uint32_t crc32c_table(std::string_view bytes, uint32_t so_far);  // the portable way, for its test
}

}  // namespace cairn
