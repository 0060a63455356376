// SPDX-License-Identifier: Apache-2.0
#include "ops/reduce/reduction.h"

#include "backends/cpu/simd_test.h"
#include "ops/catalog.h"

namespace cairn::cpu {
namespace {

const std::array kOps{&ops::sum_op, &ops::mean_op, &ops::max_op, &ops::min_op, &ops::prod_op};

Ran run(const OpDef& op, const ops::ReduceParams& p, const Dense& x, const How& how = {}) {
  return run_on(kernel_named(op, "cpu.loops"), op, p, {x}, how);
}

TEST(Reduction, AgreesWithTheReferenceForEverySetOfAxes) {
  for (const Shape& shape :
       {Shape{3, 16, 5, 7}, Shape{2, 8, 1, 9}, Shape{4, 6, 2, 1}, Shape{2, 3, 0, 4}}) {
    const Dense x = random_dense({DType::f32, shape}, 1, 0.8, 1.2);
    for (const OpDef* op : kOps)
      for (int set = 1; set < 16; ++set) {
        ops::ReduceParams p{{}, set % 3 == 0};
        for (int i = 0; i < 4; ++i)
          if (set >> i & 1) p.axes.push_back(i);
        if (shape[2] == 0 && (set & 4) && (op == &ops::max_op || op == &ops::min_op))
          continue;  // of nothing
        const auto want = run_reference_on(*op, p, {x});
        for (const char* tag : {"abcd", "aBcd8b", "aBcd16b"}) {
          SCOPED_TRACE(op->name + Params(p).to_string() + to_string(shape) + tag);
          const Ran ran = run(*op, p, x, {.layouts = {Layout::parse(tag)}});
          ASSERT_EQ(ran.refusal, "");
          EXPECT_TRUE(ran.offer.out[0].is_dense());
          expect_close(ran.out, want, 1e-6, 0);
        }
      }
  }
}

TEST(Reduction, BitsDoNotDependOnThreads) {
  struct Case {
    Shape shape;
    std::vector<int64_t> axes;
  };
  // One number, few, many (too many to sum in parts), rows, and pictures to channels.
  for (const Case& c : {Case{{200000}, {}}, Case{{5000, 10}, {0}}, Case{{40, 5000}, {0}},
                        Case{{5000, 10}, {1}}, Case{{40, 16, 9, 9}, {0, 2, 3}}}) {
    const Dense x = random_dense({DType::f32, c.shape}, 1);
    const ops::ReduceParams p{c.axes, false};
    const Ran one = run(ops::sum_op, p, x);
    expect_close(one.out, run_reference_on(ops::sum_op, p, {x}), 1e-6, 1e-5);
    for (int threads : {2, 3, 5})
      EXPECT_TRUE(same_bits(one.out, run(ops::sum_op, p, x, {.threads = threads}).out))
          << to_string(c.shape);
  }
}

TEST(Reduction, ALongSumKeepsItsSmallParts) {
  const int64_t n = int64_t(1) << 22;
  Dense x = dense_of({DType::f32, {n}});
  for (int64_t k = 0; k < n; ++k) x.set(k, 0.1);
  EXPECT_EQ(run(ops::sum_op, {}, x).out[0].at(0), double(float(double(0.1f) * double(n))));
}

TEST(Reduction, NanWins) {
  Dense x = random_dense({DType::f32, {3, 20}}, 1);
  for (int64_t at : {0, 13, 39}) x.set(at, NAN);
  for (const OpDef* op : kOps)
    expect_close(run(*op, {{1}, false}, x).out,
                 run_reference_on(*op, ops::ReduceParams{{1}, false}, {x}), 1e-6, 0);
}

TEST(Reduction, RefusesOtherDtypes) {
  EXPECT_EQ(run(ops::sum_op, {}, random_dense({DType::i32, {3}}, 1)).refusal,
            "takes f32 only, got i32");
}

}  // namespace
}  // namespace cairn::cpu
