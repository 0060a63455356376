// SPDX-License-Identifier: Apache-2.0
#include "ops/nn/pool.h"

#include "backends/cpu/simd_test.h"
#include "ops/catalog.h"

namespace cairn::cpu {
namespace {

struct Case {
  const OpDef* op;
  Params params;
  std::vector<Dense> in;
};
// Each pool at this picture, and its gradient.
std::vector<Case> cases(const Shape& shape) {
  const TensorType picture{DType::f32, shape};
  std::vector<Case> out;
  const std::vector<ops::MaxPoolParams> max{{},
                                            {{3, 3}, {2, 2}, {1, 1}, {1, 1}},
                                            {{3, 2}, {2, 1}, {1, 0}, {0, 1}, {1, 2}},
                                            {{3, 3}, {2, 2}, {0, 0}, {0, 0}, {1, 1}, true}};
  const std::vector<ops::AvgPoolParams> average{{},
                                                {{3, 2}, {2, 1}, {1, 0}, {1, 1}},
                                                {{3, 3}, {2, 2}, {1, 1}, {1, 1}, true, true},
                                                {{3, 3}, {2, 2}, {1, 1}, {1, 1}, true, false}};
  for (const auto& p : max) {
    const std::vector<Dense> in{random_dense(picture, 1)};
    const auto y = run_reference_on(ops::max_pool_op, p, in);
    out.push_back({&ops::max_pool_op, p, in});
    out.push_back({&ops::max_pool_grad_op,
                   ops::MaxPoolGradParams{{shape[2], shape[3]}},
                   {random_dense(y[0].type, 2), y[1]}});
  }
  for (const auto& p : average) {
    const TensorType y = ops::avg_pool_op.infer(p, {&picture, 1})[0];
    out.push_back({&ops::avg_pool_op, p, {random_dense(picture, 1)}});
    out.push_back({&ops::avg_pool_grad_op,
                   ops::AvgPoolGradParams{p, {shape[2], shape[3]}},
                   {random_dense(y, 2)}});
  }
  return out;
}
Ran run(const Case& c, const How& how = {}) {
  return run_on(kernel_named(*c.op, "cpu.planes"), *c.op, c.params, c.in, how);
}

TEST(Pool, AgreesWithTheReferenceInEveryLayout) {
  for (const Shape& shape :
       {Shape{2, 16, 7, 6}, Shape{1, 8, 12, 13}, Shape{3, 5, 6, 9}, Shape{0, 8, 4, 4}})
    for (const Case& c : cases(shape)) {
      const auto want = run_reference_on(*c.op, c.params, c.in);
      for (const char* tag : {"abcd", "aBcd8b", "aBcd16b", "acdb"})
        for (int threads : {1, 3}) {
          SCOPED_TRACE(c.op->name + c.params.to_string() + to_string(shape) + tag);
          const Layout layout = Layout::parse(tag);
          const Ran ran = run(c, {.layouts = {c.in.size(), layout}, .threads = threads});
          ASSERT_EQ(ran.refusal, "");
          const bool blocked = !layout.blocks().empty() && shape[1] % layout.blocks()[0].size == 0;
          EXPECT_EQ(ran.offer.in[0].tag(4), blocked ? tag : "abcd");
          EXPECT_EQ(ran.offer.in[0], ran.offer.out[0]);
          expect_close(ran.out, want, 1e-6, 1e-6);
        }
    }
}

TEST(Pool, NanWinsInEveryLayout) {
  Case c = cases({1, 8, 4, 4})[0];
  c.in[0].set(0, NAN);
  c.in[0].set(21, NAN);
  const auto want = run_reference_on(*c.op, c.params, c.in);
  for (const char* tag : {"abcd", "aBcd8b"})
    expect_close(run(c, {.layouts = {Layout::parse(tag)}}).out, want, 0, 0);
}

TEST(Pool, GradientRefusesPlacesOutsideThePicture) {
  for (double place : {-1.0, 16.0}) {
    Case c = cases({1, 8, 4, 4})[1];
    c.in[1].set(3, place);
    EXPECT_THROW(run(c, {.layouts = {Layout::parse("aBcd8b"), Layout::parse("aBcd8b")}}), Error);
    EXPECT_THROW(run(c), Error);
  }
}

TEST(Pool, RefusesOtherDtypes) {
  const Case c{
      &ops::avg_pool_op, ops::AvgPoolParams{}, {random_dense({DType::f64, {1, 8, 4, 4}}, 1)}};
  EXPECT_EQ(run(c).refusal, "takes f32 only, got f64");
}

}  // namespace
}  // namespace cairn::cpu
