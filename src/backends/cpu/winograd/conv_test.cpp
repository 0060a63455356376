// SPDX-License-Identifier: Apache-2.0
// Winograd's convolution against the reference: odd shapes, all directions, fused forms, threads,
// and memory that ends where it is said to end.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>

#include "backends/cpu/isa.h"
#include "backends/cpu/kernel_test.h"
#include "backends/cpu/winograd/conv.h"
#include "backends/cpu/winograd/micro_kernel.h"
#include "ops/catalog.h"
#include "ops/fused/conv.h"

namespace cairn::cpu {
namespace {

class Winograd : public testing::Test {
 protected:
  void SetUp() override {
    if (isa() == Isa::sse4) GTEST_SKIP() << "needs AVX2";
    if (isa() == Isa::avx512 && !std::getenv(winograd::kForceAvx512))
      GTEST_SKIP() << "set " << winograd::kForceAvx512;
  }
};

struct Case {
  int64_t n, c, k, h, w;
  Shape before{1, 1}, after{1, 1};

  ops::ConvParams params() const { return {.pad_before = before, .pad_after = after}; }
  TypeList operands() const { return {{DType::f32, {n, c, h, w}}, {DType::f32, {k, c, 3, 3}}}; }
  TensorType y() const { return {DType::f32, conv_sizes(params(), operands()).output()}; }
  Call forward() const { return {&ops::conv_op, params(), operands()}; }
  Call input_gradient() const {
    return {
        &ops::conv_grad_input_op, ops::ConvGradInputParams{params(), {h, w}}, {y(), operands()[1]}};
  }
  Call weight_gradient() const {
    return {&ops::conv_grad_weight_op,
            ops::ConvGradWeightParams{params(), {3, 3}},
            {operands()[0], y()}};
  }
  Call fused(bool bias, bool residual, const std::string& activation) const {
    Call call{&ops::fused_conv_op, ops::FusedConvParams{params(), bias, residual, activation},
              operands()};
    if (bias) call.in.push_back({DType::f32, {k}});
    if (residual) call.in.push_back(y());
    return call;
  }
  std::vector<Call> all() const { return {forward(), input_gradient(), weight_gradient()}; }
};

std::string describe(const Call& call) {
  std::string text = call.op->name + call.params.to_string();
  for (const TensorType& t : call.in) text += " " + to_string(t);
  return text;
}

// Channels are multiplied to fill blocks of 16 as well.
int64_t blocks(int64_t n) { return n * channel_block(); }

std::vector<Case> cases() {
  std::vector<Case> list;
  for (int64_t size = 1; size <= 17; ++size)  // every remainder of a tile, on each side
    list.push_back({1 + size % 3, blocks(1 + size % 2), blocks(1 + size % 3), size, 18 - size});
  for (const int64_t before : {0, 1, 2})
    for (const int64_t after : {0, 1, 2})
      list.push_back({2, blocks(1), blocks(2), 6, 7, {before, after}, {after, 2 - before}});
  for (const int64_t c : {1, 2, 3, 5, 8})
    for (const int64_t k : {1, 2, 3, 5, 8}) list.push_back({2, blocks(c), blocks(k), 7, 5});
  list.push_back({3, blocks(2), blocks(2), 31, 29});
  return list;
}

// Memory with pages around it that nobody may touch, close behind its end or before its start.
class Fenced {
 public:
  Fenced(size_t bytes, bool at_end) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    const size_t size = (bytes + page - 1) / page * page;
    mapped_ = size + 2 * page;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + page, size, PROT_READ | PROT_WRITE);
    data_ = base_ + page + (at_end ? size - bytes : 0);
    std::memset(data_, 0xFF, bytes);  // NaNs: reading what nobody wrote shows
  }
  Fenced(const Fenced&) = delete;
  ~Fenced() { munmap(base_, mapped_); }
  std::byte* data() const { return data_; }

 private:
  std::byte *base_, *data_;
  size_t mapped_;
};

struct How {
  int threads = 1;
  bool in_place = false;          // over the residual
  bool constant_weights = false;  // then they are not given again to run()
  bool at_end = true;             // where the fence stands
};
const Kernel& winograd_kernel(const OpDef& op) {
  return **std::ranges::find(cpu_backend().kernels(op), "cpu.winograd", &Kernel::name);
}

// Runs it even where the direct way is faster.
Outcome run(const Call& call, const std::vector<Values>& inputs, const How& how = {}) {
  const TypeList types = call.op->infer(call.params, call.in);
  const void* constants[] = {nullptr, inputs[1].data()};
  KernelRequest request{*call.op, call.params, call.in, types, {}, how.threads};
  if (how.constant_weights) request.constants = constants;
  OfferResult result = winograd::offer_anything(request);
  if (auto* refusal = std::get_if<Refusal>(&result)) return {refusal->reason};
  Outcome outcome{{}, std::get<KernelOffer>(result), {Values(size_t(types[0].numel()))}};
  const KernelOffer& offer = outcome.offer;
  const auto prepared = winograd_kernel(*call.op).prepare(request, offer);
  std::deque<Fenced> memory;
  std::vector<const void*> in;
  for (size_t i = 0; i < inputs.size(); ++i) {
    void* to = memory.emplace_back(inputs[i].size() * sizeof(float), how.at_end).data();
    if (i != 1 || !how.constant_weights)
      reorder_reference(call.in[i], {}, inputs[i].data(), offer.in[i], to);
    in.push_back(to);
  }
  void* out = how.in_place ? const_cast<void*>(in.at(size_t(offer.in_place.at(0).first)))
                           : memory.emplace_back(size_t(types[0].bytes()), how.at_end).data();
  const Fenced workspace(offer.workspace_bytes, how.at_end);
  const int before = thread_count();
  set_thread_count(how.threads);
  prepared->run(in.data(), &out, workspace.data());
  set_thread_count(before);
  reorder_reference(types[0], offer.out[0], out, {}, outcome.out[0].data());
  return outcome;
}

// Against the standard deviation of the results.
struct Errors {
  double mean, largest;
};
Errors errors(const Values& got, const std::vector<double>& want) {
  double error = 0, square = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double e = std::fabs(got[i] - want[i]);
    largest = std::fmax(largest, e);
    error += e * e;
    square += want[i] * want[i];
  }
  return {std::sqrt(error / square), largest / std::sqrt(square / double(want.size()))};
}

TEST_F(Winograd, EqualsTheReferenceInAllDirectionsForOddShapes) {
  for (const Case& c : cases())
    for (const Call& call : c.all()) {
      const auto inputs = inputs_of(call);
      const auto want = run_reference(call, inputs)[0];
      const bool weights = call.op != &ops::conv_grad_weight_op;
      for (const How& how : {How{1}, How{3}, How{.at_end = false}, How{3, false, weights}}) {
        SCOPED_TRACE(fmt::format("{}, {} threads, constant weights {}", describe(call), how.threads,
                                 how.constant_weights));
        const Outcome got = run(call, inputs, how);
        ASSERT_EQ(got.refusal, "");
        const Errors e = errors(got.out[0], want);
        ASSERT_LT(e.mean, 1e-5);
        ASSERT_LT(e.largest, 5e-5);
      }
    }
}

TEST_F(Winograd, EqualsTheReferenceWithWhatIsFused) {
  for (const char* activation :
       {"none", "relu", "clamp{low=-0.5, high=6.0}", "leaky_relu{slope=0.1}", "silu"})
    for (const int extra : {0, 1, 2, 3})
      for (const bool in_place : {false, true}) {
        const bool bias = extra & 1, residual = extra & 2;
        if (in_place && !residual) continue;
        const Call call = Case{2, blocks(2), blocks(3), 9, 10}.fused(bias, residual, activation);
        SCOPED_TRACE(describe(call));
        const auto inputs = inputs_of(call);
        const Outcome got = run(call, inputs, {2, in_place});
        ASSERT_EQ(got.refusal, "");
        EXPECT_EQ(got.offer.in_place.size(), residual ? 1u : 0u);
        expect_near(got.out[0], run_reference(call, inputs)[0], 1e-5);
      }
}

TEST_F(Winograd, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const Case& c : {Case{3, blocks(2), blocks(3), 30, 29}, Case{2, blocks(8), blocks(9), 7, 7}})
    for (const Call& call : c.all()) {
      const auto inputs = inputs_of(call);
      const auto one = run(call, inputs).out;
      for (const int threads : {2, 3, 8})
        EXPECT_EQ(run(call, inputs, {threads}).out, one)
            << describe(call) << " with " << threads << " threads";
    }
}

TEST_F(Winograd, KeepsNaN) {
  const Call call = Case{1, blocks(1), blocks(1), 8, 8}.fused(false, false, "relu");
  auto inputs = inputs_of(call);
  inputs[0][0] = std::numeric_limits<float>::quiet_NaN();
  const Values got = run(call, inputs).out[0];
  EXPECT_TRUE(std::isnan(got[0]));
  EXPECT_FALSE(std::isnan(got[7]));  // of the next tile
}

TEST_F(Winograd, RefusesWhatItCannotDo) {
  const auto refusal = [](const Call& call) { return run(call, inputs_of(call)).refusal; };
  const int64_t c = blocks(1);
  const Case fits{1, c, c, 8, 8};
  ops::ConvParams strided = fits.params();
  strided.stride = {2, 1};
  Call call = fits.forward();
  call.params = strided;
  EXPECT_NE(refusal(call), "");
  EXPECT_NE(refusal(Case{1, c, c + 4, 8, 8}.forward()), "");
  EXPECT_NE(refusal(Case{1, c, c, 8, 8, {3, 1}}.input_gradient()), "");
  EXPECT_EQ(refusal(Case{0, c, c, 8, 8}.forward()), "an empty operand");
  EXPECT_EQ(refusal(fits.fused(false, false, "tanh")), "has no tanh");
  call = fits.forward();
  for (TensorType& t : call.in) t.dtype = DType::f64;
  EXPECT_EQ(refusal(call), "takes f32, got f64");
}

TEST_F(Winograd, IsOfferedWhereItIsFasterAndMayBeInexact) {
  const auto offered = [](const Case& c, bool exact = false) {
    const Call call = c.forward();
    const TypeList out{c.y()};
    return std::holds_alternative<KernelOffer>(winograd_kernel(*call.op).offer(
        {.op = *call.op, .params = call.params, .in = call.in, .out = out, .exact = exact}));
  };
  EXPECT_TRUE(offered({8, 64, 64, 56, 56}));
  EXPECT_FALSE(offered({8, 64, 64, 56, 56}, true));
  EXPECT_FALSE(offered({1, 64, 64, 4, 4}));
}

// ---- the generated code by itself ----

TEST_F(Winograd, MicroKernelsEqualPlainLoops) {
  const int64_t lanes = channel_block(), blocks = 3;
  const winograd::MicroKernels& kernels = winograd::micro_kernels(int(lanes));
  for (const int vectors : {1, 2}) {
    for (int rows = 1; rows <= kernels.max_rows; ++rows) {
      const int64_t stride = (rows + 3) * lanes;
      const Values v = random_values(blocks * stride, 1),
                   u = random_values(blocks * lanes * vectors * lanes, 2);
      Values m(size_t(2 * stride), 7);
      kernels.products[vectors - 1][rows - 1](v.data(), u.data(), m.data(), blocks,
                                              stride * int64_t(sizeof(float)), u.data());
      for (int64_t i = 0; i < 2 * stride; ++i) {
        const int64_t vector = i / stride, row = i % stride / lanes, lane = i % lanes;
        double want = 7;  // where nothing may be written
        if (vector < vectors && row < rows) {
          want = 0;
          for (int64_t d = 0; d < blocks * lanes; ++d)
            want += double(v[size_t(d / lanes * stride + row * lanes + d % lanes)]) *
                    u[size_t((d * vectors + vector) * lanes + lane)];
        }
        ASSERT_NEAR(m[size_t(i)], want, 1e-5) << rows << " rows, " << vectors << " vectors";
      }
    }
    for (const bool add : {false, true}) {
      const int64_t depth = blocks * lanes, stride = (depth + 2) * lanes;
      const Values v = random_values(depth * lanes, 3), z = random_values(2 * stride, 4);
      Values s(size_t((kernels.tile_rows + 1) * vectors * lanes), 7);
      kernels.tile_products[vectors - 1][add](v.data(), z.data(), s.data(), blocks,
                                              stride * int64_t(sizeof(float)));
      for (size_t i = 0; i < s.size(); ++i) {
        const int64_t row = int64_t(i) / (vectors * lanes), vector = int64_t(i) / lanes % vectors,
                      lane = int64_t(i) % lanes;
        double want = row < kernels.tile_rows && !add ? 0 : 7;
        for (int64_t t = 0; t < depth && row < kernels.tile_rows; ++t)
          want +=
              double(v[size_t(t * lanes + row)]) * z[size_t(vector * stride + t * lanes + lane)];
        ASSERT_NEAR(s[i], want, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace cairn::cpu
