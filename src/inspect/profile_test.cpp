// SPDX-License-Identifier: Apache-2.0
#include "inspect/profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace cairn::inspect {
namespace {

TEST(Profile, CollectsSpansIntoATableAndATimeline) {
  Profile profile;
  for (int i = 0; i < 3; ++i) ProfileSpan span("conv kernel", "layer1.conv", 2e6, 1e3);
  { ProfileSpan span("relu kernel"); }
  const auto trace = nlohmann::json::parse(profile.chrome_trace());
  ASSERT_EQ(trace["traceEvents"].size(), 4u);
  EXPECT_EQ(trace["traceEvents"][0]["name"], "conv kernel");
  EXPECT_EQ(trace["traceEvents"][0]["args"]["module"], "layer1.conv");
  EXPECT_GE(trace["traceEvents"][1]["ts"].get<double>(), trace["traceEvents"][0]["ts"].get<double>());
  const std::string table = profile.table();
  EXPECT_NE(table.find("conv kernel"), std::string::npos);
  EXPECT_NE(table.find("    3"), std::string::npos) << table;
}

TEST(Profile, NothingIsRecordedWhenNobodyListens) {
  { ProfileSpan span("before"); }
  Profile profile;
  EXPECT_EQ(nlohmann::json::parse(profile.chrome_trace())["traceEvents"].size(), 0u);
}

}  // namespace
}  // namespace cairn::inspect
