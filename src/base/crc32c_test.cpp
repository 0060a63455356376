// SPDX-License-Identifier: Apache-2.0
// CRC-32C against the published values (RFC 3720 B.4), and its two ways against each other.
#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace cairn {
namespace {

std::string counting(int from, int step) {
  std::string s;
  for (int i = 0; i < 32; ++i) s += char(from + step * i);
  return s;
}

TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(counting(0, 1)), 0x46DD794Eu);
  EXPECT_EQ(crc32c(counting(31, -1)), 0x113FDB5Cu);
  EXPECT_EQ(detail::crc32c_table("123456789", 0), 0xE3069283u);
}

TEST(Crc32c, TheInstructionAndTheTableAgreeAtEveryLengthAndOffset) {
  std::string data(20000, '\0');
  Random random(7);
  for (char& c : data) c = char(random.next());
  for (size_t n : {0, 1, 7, 8, 9, 63, 64, 1023, 1024, 3071, 3072, 3073, 6145, 9300, 19990})
    for (size_t offset = 0; offset < 9; ++offset) {
      const auto piece = std::string_view(data).substr(offset, n);
      EXPECT_EQ(crc32c(piece), detail::crc32c_table(piece, 0)) << n << " at " << offset;
    }
}

TEST(Crc32c, GoesOnOverPieces) {
  std::string data(10000, '\0');
  Random random(8);
  for (char& c : data) c = char(random.next());
  for (size_t cut : {0, 1, 13, 4096, 10000})
    EXPECT_EQ(
        crc32c(std::string_view(data).substr(cut), crc32c(std::string_view(data).substr(0, cut))),
        crc32c(data));
}

TEST(Crc32c, MaskIsTheOneOfTfrecord) { EXPECT_EQ(mask_crc(0), 0xa282ead8u); }

}  // namespace
}  // namespace cairn
