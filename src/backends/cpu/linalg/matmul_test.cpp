// SPDX-License-Identifier: Apache-2.0
// Matrix products against the reference: transposes, broadcasts, threads, bits.
#include <fmt/format.h>

#include "backends/cpu/kernel_test.h"
#include "ops/catalog.h"
#include "ops/linalg/matmul.h"

namespace cairn::cpu {
namespace {

// One product in the four ways to give its operands; the shapes are those without transposes.
std::vector<Call> products(const Shape& a, const Shape& b) {
  const auto shape = [](Shape s, bool transposed) {
    if (transposed) std::swap(s[s.rank() - 2], s[s.rank() - 1]);
    return TensorType{DType::f32, s};
  };
  std::vector<Call> calls;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      calls.push_back({&ops::matmul_op, ops::MatmulParams{ta, tb}, {shape(a, ta), shape(b, tb)}});
  return calls;
}

std::vector<Call> all_products() {
  std::vector<Call> calls;
  for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{5, 7}, {7, 3}},
                                                                 {{1, 64}, {64, 10}},
                                                                 {{64, 1}, {1, 10}},
                                                                 {{33, 17}, {17, 1}},
                                                                 {{1, 1}, {1, 1}},
                                                                 {{32, 512}, {512, 10}},
                                                                 {{100, 300}, {300, 129}},
                                                                 {{4, 6, 5}, {5, 8}},
                                                                 {{2, 3, 6, 5}, {5, 8}},
                                                                 {{4, 6, 5}, {4, 5, 8}},
                                                                 {{6, 5}, {4, 5, 8}},
                                                                 {{2, 1, 6, 5}, {3, 5, 8}},
                                                                 {{2, 1, 6, 5}, {1, 3, 5, 8}},
                                                                 {{1, 6, 5}, {4, 5, 8}},
                                                                 {{3, 1, 7}, {3, 7, 1}}})
    for (Call& call : products(a, b)) calls.push_back(std::move(call));
  return calls;
}

std::string describe(const Call& call) {
  return fmt::format("matmul{} {} {}", call.params.to_string(), to_string(call.in[0]),
                     to_string(call.in[1]));
}

TEST(Matmul, EqualsTheReference) {
  for (const Call& call : all_products())
    for (const Options& options : {Options{1}, Options{2}, Options{2, true}}) {
      SCOPED_TRACE(describe(call));
      const auto inputs = inputs_of(call);
      const Outcome got = run_kernel("onednn.matmul", call, inputs, options);
      ASSERT_EQ(got.refusal, "");
      expect_near(got.out[0], run_reference(call, inputs)[0], 1e-5);
    }
}

TEST(Matmul, GivesTheSameBitsTwice) {
  for (const Call& call : all_products()) {
    const auto inputs = inputs_of(call);
    EXPECT_EQ(run_kernel("onednn.matmul", call, inputs, {2}).out,
              run_kernel("onednn.matmul", call, inputs, {2}).out)
        << describe(call);
  }
}

TEST(Matmul, DeterministicGivesTheSameBitsForAnyNumberOfThreads) {
  auto calls = all_products();
  for (Call& call : products({16, 3000}, {3000, 24})) calls.push_back(std::move(call));
  for (const Call& call : calls) {
    const auto inputs = inputs_of(call);
    const auto one = run_kernel("onednn.matmul", call, inputs, {1, true}).out;
    for (const int threads : {2, 3, 7})
      EXPECT_EQ(run_kernel("onednn.matmul", call, inputs, {threads, true}).out, one)
          << describe(call) << " with " << threads << " threads";
  }
}

TEST(Matmul, OverNothingGivesZeros) {
  for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{2, 0}, {0, 3}},
                                                                 {{0, 4}, {4, 3}},
                                                                 {{2, 4}, {4, 0}},
                                                                 {{0, 2, 4}, {4, 3}},
                                                                 {{0, 2, 4}, {0, 4, 3}}})
    for (const Call& call : products(a, b)) {
      const auto inputs = inputs_of(call);
      const Outcome got = run_kernel("onednn.matmul", call, inputs);
      ASSERT_EQ(got.refusal, "") << describe(call);
      expect_near(got.out[0], run_reference(call, inputs)[0], 0);
    }
}

TEST(Matmul, RefusesOtherTypesWithAReason) {
  Call call = products({2, 3}, {3, 4})[0];
  for (TensorType& t : call.in) t.dtype = DType::i32;
  EXPECT_EQ(run_kernel("onednn.matmul", call, inputs_of(call)).refusal, "takes f32, got i32");
}

}  // namespace
}  // namespace cairn::cpu
