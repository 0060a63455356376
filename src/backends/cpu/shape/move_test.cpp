// SPDX-License-Identifier: Apache-2.0
// Kernels that move elements, pick positions or make numbers, against their references.
#include <cairn/ops.h>

#include <limits>

#include "backends/cpu/shape/strided_copy.h"
#include "backends/cpu/simd_test.h"
#include "ops/catalog.h"

namespace cairn::cpu {
namespace {

const std::vector<const OpDef*> kOps{
    &ops::transpose_op,    &ops::broadcast_to_op, &ops::slice_op,  &ops::reshape_op,
    &ops::identity_op,     &ops::concat_op,       &ops::split_op,  &ops::pad_op,
    &ops::slice_grad_op,   &ops::gather_op,       &ops::full_op,   &ops::iota_op,
    &ops::one_hot_op,      &ops::argmax_op,       &ops::argmin_op, &ops::random_uniform_op,
    &ops::random_normal_op};

// The kernel that takes dense tensors.
const Kernel* kernel_of(const OpDef& op) { return kernel_named(op, &op == &ops::slice_op ? "cpu.copy" : "cpu"); }

void expect_as_reference(const OpDef& op, const Params& params, const std::vector<Dense>& in,
                         const How& how = {}) {
  SCOPED_TRACE(op.name + params.to_string());
  const Ran ran = run_on(kernel_of(op), op, params, in, how);
  ASSERT_EQ(ran.refusal, "");
  expect_close(ran.out, run_reference_on(op, params, in), 0, 0);
}
Params params_of(const OpDef& op, NamedValues values) { return op.make_params(values); }

TEST(Moves, SamplesOfEveryDtypeAgreeWithTheReference) {
  int runs = 0;
  for (const OpDef* op : kOps)
    for (const auto& sample : op->samples)
      for (const DType dtype : kAllDTypes) {
        std::vector<SampleInput> inputs = sample.inputs;
        const bool any = op->inputs.empty() || op->inputs[0].dtypes == any_dtype ||
                         op->inputs[0].dtypes == any_number;
        if (!any && dtype != DType::f32) continue;
        if (any && !inputs.empty() && !contains(op->inputs[0].dtypes, dtype)) continue;
        for (size_t k = 0; any && k < inputs.size(); ++k)
          if (k == 0 || op->inputs.size() == 1) inputs[k].type.dtype = dtype;
        const auto in = random_inputs(inputs, 7);
        if (run_on(kernel_of(*op), *op, sample.params, in)
                .refusal.starts_with("gives f32"))
          continue;
        expect_as_reference(*op, sample.params, in, {.threads = 2});
        ++runs;
      }
  EXPECT_GT(runs, 300);
}

TEST(Moves, LargeOnesAgreeOnAnyNumberOfThreads) {
  using List = std::vector<int64_t>;
  const Dense x = random_dense({DType::f32, {5, 33, 47, 19}}, 1);
  for (int threads : {1, 3}) {
    const How how{.threads = threads};
    for (const List& order : {List{0, 1, 2, 3}, List{3, 2, 1, 0}, List{0, 2, 3, 1},
                              List{0, 3, 1, 2}, List{1, 0, 3, 2}, List{2, 3, 0, 1}})
      expect_as_reference(ops::transpose_op, params_of(ops::transpose_op, {{"order", order}}), {x},
                          how);
    expect_as_reference(ops::slice_op,
                        params_of(ops::slice_op, {{"begin", List{4, 1, 40, 0}},
                                                  {"end", List{-6, 30, 3, 19}},
                                                  {"step", List{-2, 3, -1, 1}}}),
                        {x}, how);
    expect_as_reference(
        ops::pad_op,
        params_of(ops::pad_op,
                  {{"before", List{0, 1, 2, 3}}, {"after", List{1, 0, 2, 30}}, {"value", 0.25}}),
        {x}, how);
    expect_as_reference(ops::broadcast_to_op,
                        params_of(ops::broadcast_to_op, {{"shape", List{4, 6, 33, 47, 50}}}),
                        {random_dense({DType::f32, {6, 33, 1, 50}}, 2)}, how);
    expect_as_reference(ops::concat_op, params_of(ops::concat_op, {{"axis", int64_t(2)}}),
                        {x, random_dense({DType::f32, {5, 33, 8, 19}}, 2), x}, how);
    expect_as_reference(
        ops::split_op,
        params_of(ops::split_op, {{"axis", int64_t(1)}, {"lengths", List{3, 0, 30}}}), {x}, how);
    expect_as_reference(ops::argmax_op, params_of(ops::argmax_op, {{"axis", int64_t(1)}}), {x},
                        how);
    expect_as_reference(ops::random_uniform_op,
                        params_of(ops::random_uniform_op, {{"stream", int64_t(5)},
                                                           {"shape", List{101, 203}},
                                                           {"low", -2.0},
                                                           {"high", 1.5},
                                                           {"dtype", DType::f32}}),
                        random_inputs({i64({}, 0, 99), i64({}, 0, 99)}, 1), how);
  }
}

TEST(Moves, BlockedTensorsAreJoinedAndSplitWithoutReorders) {
  const Layout blocked = Layout::parse("aBcd8b");
  const auto picture = [](int64_t channels, uint64_t seed) {
    return random_dense({DType::f32, {2, channels, 5, 3}}, seed);
  };
  const Params axis1 = params_of(ops::concat_op, {{"axis", int64_t(1)}}),
               axis2 = params_of(ops::concat_op, {{"axis", int64_t(2)}});
  const How how{.layouts = {blocked, blocked, blocked}};
  for (const auto& [params, in] :
       {std::pair{axis1, std::vector{picture(8, 1), picture(24, 2), picture(16, 3)}},
        std::pair{axis2, std::vector{picture(16, 1), picture(16, 2)}}}) {
    expect_as_reference(ops::concat_op, params, in, how);
    EXPECT_EQ(
        run_on(kernel_named(ops::concat_op, "cpu"), ops::concat_op, params, in, how).offer.out[0],
        blocked);
  }
  const std::vector<Dense> odd{picture(8, 1), picture(4, 2)};
  EXPECT_TRUE(run_on(kernel_named(ops::concat_op, "cpu"), ops::concat_op, axis1, odd, how)
                  .offer.out[0]
                  .is_dense());
  expect_as_reference(ops::concat_op, axis1, odd, how);
  const Params split =
      params_of(ops::split_op, {{"axis", int64_t(1)}, {"lengths", std::vector<int64_t>{8, 24}}});
  expect_as_reference(ops::split_op, split, {picture(32, 4)}, how);
  EXPECT_EQ(run_on(kernel_named(ops::split_op, "cpu"), ops::split_op, split, {picture(32, 4)}, how)
                .offer.out[1],
            blocked);
}

TEST(Moves, SlicesOfWholeBlocksStayBlocked) {
  using List = std::vector<int64_t>;
  const Layout blocked = Layout::parse("aBcd8b");
  const Dense x = random_dense({DType::f32, {3, 32, 5, 7}}, 1);
  const auto slice = [&](const List& begin, const List& end, const List& step) {
    const Params params = params_of(ops::slice_op, {{"begin", begin}, {"end", end}, {"step", step}});
    const Ran ran = run_on(kernel_named(ops::slice_op, "cpu.blocks"), ops::slice_op, params, {x}, {.layouts = {blocked}});
    if (ran.refusal.empty()) {
      EXPECT_EQ(ran.offer.out[0], blocked);
      expect_close(ran.out, run_reference_on(ops::slice_op, params, {x}), 0, 0);
    }
    return ran.refusal;
  };
  EXPECT_EQ(slice({0, 8, 0, 0}, {3, 24, 5, 7}, {1, 1, 1, 1}), "");
  EXPECT_EQ(slice({1, 24, 1, 2}, {3, 32, 5, 6}, {1, 1, 2, 3}), "");
  EXPECT_EQ(slice({0, 4, 0, 0}, {3, 12, 5, 7}, {1, 1, 1, 1}), "does not take whole blocks");
  EXPECT_EQ(slice({0, 0, 0, 0}, {3, 32, 5, 7}, {1, 2, 1, 1}), "does not take whole blocks");
  EXPECT_EQ(slice({0, 0, 0, 0}, {3, 12, 5, 7}, {1, 1, 1, 1}), "takes blocks that are full");
}

TEST(Moves, PicturesGrowByWholeFactorsInEveryLayout) {
  for (const char* tag : {"abcd", "aBcd4b", "aBcd8b", "aBcd16b"})
    for (const auto& [channels, down, across] : {std::tuple{16, 2, 2}, std::tuple{5, 3, 1}, std::tuple{24, 1, 4}}) {
      const Layout layout = Layout::parse(tag);
      const TensorType small{DType::f32, {2, channels, 4, 5}}, large{DType::f32, {2, channels, 4 * down, 5 * across}};
      const auto check = [&](const OpDef& op, const TensorType& from, const TensorType& to) {
        SCOPED_TRACE(op.name + " " + tag);
        const Params params = params_of(op, {{"size", std::vector<int64_t>{to.shape[2], to.shape[3]}}, {"mode", std::string("nearest")}});
        const std::vector<Dense> in{random_dense(from, 3)};
        const Ran ran = run_on(kernel_named(op, "cpu"), op, params, in, {.layouts = {layout}, .threads = 2});
        ASSERT_EQ(ran.refusal, "");
        EXPECT_EQ(ran.offer.out[0], layout);
        expect_close(ran.out, run_reference_on(op, params, in), 1e-6, 1e-6);
      };
      check(ops::resize2d_op, small, large);
      check(ops::resize2d_grad_op, large, small);
    }
}

TEST(Moves, NaNWinsAndTheFirstOfEqualsIsTaken) {
  Dense x = dense_of({DType::f32, {3, 4}});
  const double values[] = {1, 3, 3, 2, 0, std::nan(""), 9, std::nan(""), 5, 5, 5, 5};
  for (int k = 0; k < 12; ++k) x.set(k, values[k]);
  const auto index = run_on(kernel_named(ops::argmax_op, "cpu"), ops::argmax_op,
                            params_of(ops::argmax_op, {}), {x})
                         .out[0];
  EXPECT_EQ((std::vector{index.at(0), index.at(1), index.at(2)}), (std::vector<double>{1, 1, 0}));
}

TEST(Moves, AnIndexOutOfRangeIsAnError) {
  std::vector<Dense> in{random_dense({DType::f32, {3, 2}}, 1), dense_of({DType::i64, {1}})};
  in[1].set(0, 3);
  EXPECT_THROW(run_on(kernel_named(ops::gather_op, "cpu"), ops::gather_op,
                      params_of(ops::gather_op, {}), in),
               Error);
}

}  // namespace
}  // namespace cairn::cpu
