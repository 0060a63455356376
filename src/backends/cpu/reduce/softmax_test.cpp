// SPDX-License-Identifier: Apache-2.0
#include "ops/reduce/softmax.h"

#include "backends/cpu/simd_test.h"
#include "ops/catalog.h"
#include "ops/loss/cross_entropy.h"

namespace cairn::cpu {
namespace {

Ran run(const OpDef& op, const Params& p, const std::vector<Dense>& in, const How& how = {}) {
  return run_on(kernel_named(op, "cpu.rows"), op, p, in, how);
}

TEST(Softmax, AgreesWithTheReferenceAlongEveryAxis) {
  for_each_target([](const char*) {
    for (const Shape& shape :
         {Shape{3, 1, 7}, Shape{2, 5, 40}, Shape{4, 33, 17}, Shape{1, 1000, 1}, Shape{0, 3, 2}})
      for (int64_t axis : {0, 1, 2}) {
        const Dense x = random_dense({DType::f32, shape}, 1, -30, 30);
        for (const OpDef* op : {&ops::softmax_op, &ops::log_softmax_op})
          for (const bool in_place : {false, true}) {
            SCOPED_TRACE(op->name + to_string(shape) + std::to_string(axis));
            const Params p = ops::SoftmaxParams{axis};
            const Ran ran = run(*op, p, {x}, {.threads = 3, .in_place = in_place});
            ASSERT_EQ(ran.refusal, "");
            expect_close(ran.out, run_reference_on(*op, p, {x}), 4e-6, 4e-6);
          }
      }
  });
}

TEST(Softmax, LargeInfiniteAndNanValuesActAsInTheReference) {
  Dense x = random_dense({DType::f32, {6, 9}}, 1);
  x.set(0, 3e38), x.set(10, -3e38), x.set(19, -INFINITY), x.set(29, NAN), x.set(37, INFINITY);
  for (int64_t k = 45; k < 54; ++k) x.set(k, -1e30);
  for (const OpDef* op : {&ops::softmax_op, &ops::log_softmax_op})
    expect_close(run(*op, ops::SoftmaxParams{}, {x}).out,
                 run_reference_on(*op, ops::SoftmaxParams{}, {x}), 4e-6, 4e-6);
}

struct LossCase {
  Params params;
  std::vector<Dense> in;  // logits, labels[, class weights]
};
std::vector<LossCase> loss_cases() {
  std::vector<LossCase> out;
  for (const Shape& logits :
       {Shape{7, 10}, Shape{2, 5, 19}, Shape{1, 1000}, Shape{3, 2, 4, 5}, Shape{0, 3}})
    for (const DType labels : {DType::i64, DType::i32})
      for (const double smoothing : {0.0, 0.1})
        for (const bool weighted : {false, true}) {
          Shape records = logits;
          records.erase(1);
          Dense y = dense_of({labels, records});
          for (int64_t k = 0; k < records.numel(); ++k)
            y.set(k, k % 4 == 3 ? double(ops::kIgnoredLabel) : double(k * 7 % logits[1]));
          out.push_back({ops::CrossEntropyParams{smoothing},
                         {random_dense({DType::f32, logits}, 1, -9, 9), y}});
          if (weighted) out.back().in.push_back(random_dense({DType::f32, {logits[1]}}, 2, 0.5, 2));
        }
  return out;
}

TEST(CrossEntropyRows, LossAndGradientAgreeWithTheReference) {
  for_each_target([](const char*) {
    for (const LossCase& c : loss_cases()) {
      SCOPED_TRACE(to_string(c.in[0].type) + c.params.to_string() + std::to_string(c.in.size()));
      const Ran loss = run(ops::cross_entropy_op, c.params, c.in, {.threads = 2});
      ASSERT_EQ(loss.refusal, "");
      expect_close(loss.out, run_reference_on(ops::cross_entropy_op, c.params, c.in), 1e-6, 4e-6);
      std::vector<Dense> in{random_dense(loss.out[0].type, 3), c.in[0], c.in[1], loss.out[1]};
      if (c.in.size() > 2) in.push_back(c.in[2]);
      for (const bool in_place : {false, true}) {
        const Ran gradient =
            run(ops::cross_entropy_grad_op, c.params, in, {.threads = 2, .in_place = in_place});
        ASSERT_EQ(gradient.refusal, "");
        expect_close(gradient.out, run_reference_on(ops::cross_entropy_grad_op, c.params, in), 4e-6,
                     4e-6);
      }
    }
  });
}

TEST(CrossEntropyRows, AConfidentRecordKeepsItsSmallLoss) {
  Dense x = dense_of({DType::f32, {1, 2}}), y = dense_of({DType::i64, {1}});
  x.set(0, 1000), x.set(1, 990);
  EXPECT_NEAR(run(ops::cross_entropy_op, ops::CrossEntropyParams{}, {x, y}).out[0].at(0),
              std::log1p(std::exp(-10.0)), 1e-7);
}

TEST(CrossEntropyRows, AWrongLabelIsAnError) {
  const Dense x = random_dense({DType::f32, {2, 3}}, 1);
  Dense y = dense_of({DType::i64, {2}});
  y.set(1, 3);
  EXPECT_THROW(run(ops::cross_entropy_op, ops::CrossEntropyParams{}, {x, y}), Error);
}

}  // namespace
}  // namespace cairn::cpu
