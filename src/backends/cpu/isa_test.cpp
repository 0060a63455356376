// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/isa.h"

#include <cairn/error.h>
#include <gtest/gtest.h>

namespace cairn::cpu {
namespace {

TEST(Isa, UsesWhatTheMachineHasUnlessAskedForLess) {
  const IsaReport free = isa_report("");
  EXPECT_EQ(free.used, free.machine);
  EXPECT_FALSE(free.processor.empty());
  EXPECT_EQ(isa_report("sse4").used, Isa::sse4);
  for (const char* asked : {"sse4", "avx2", "avx512"})
    EXPECT_LE(isa_report(asked).used, free.machine) << asked;
}

TEST(Isa, RefusesAnUnknownName) {
  try {
    isa_report("avx3");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(e.message().find("avx3"), std::string::npos);
    EXPECT_NE(e.message().find("sse4, avx2, avx512"), std::string::npos);
  }
}

}  // namespace
}  // namespace cairn::cpu
