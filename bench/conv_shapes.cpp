// SPDX-License-Identifier: Apache-2.0
// How near each convolution of ResNet-50 comes to what the processor can do: GF/s and share of the
// FMA peak, in the three directions, with the implementation that oneDNN chose.
//
//   conv_shapes [--batch 8] [--threads 2] [--rounds 5] [--deterministic] [--winograd]
//
// With --winograd instead: the 3 × 3 convolutions of ResNet-50 and YOLO by Winograd beside oneDNN,
// both in GF/s of the direct way, and how far their results differ, of the standard deviation.
//
// The best of all rounds counts, as other programs on the machine only ever slow one down. One
// thread is measured in its own CPU time, which a busy machine disturbs little.
#include <fmt/format.h>
#include <immintrin.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>

#include "backends/cpu/isa.h"
#include "backends/cpu/onednn.h"
#include "base/parallel.h"
#include "ops/catalog.h"
#include "ops/nn/conv.h"

namespace cairn {
namespace {

double now(int threads) {
  timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// Twelve independent chains of multiply-adds, as a kernel's inner loop has.
constexpr int kChains = 12, kRounds = 200'000;
#define CAIRN_FMA_LOOP(vector, set, fma)         \
  vector sums[kChains];                          \
  for (auto& s : sums) s = set(1.0f);            \
  const vector a = set(0.9999f), b = set(1e-4f); \
  for (int i = 0; i < kRounds; ++i)              \
    for (auto& s : sums) {                       \
      s = fma(s, a, b);                          \
      asm volatile("" : "+x"(s));                \
    }                                            \
  return 2.0 * sizeof(vector) / sizeof(float) * kChains * kRounds;
__attribute__((target("avx512f"))) double fma_avx512() {
  CAIRN_FMA_LOOP(__m512, _mm512_set1_ps, _mm512_fmadd_ps)
}
__attribute__((target("avx2,fma"))) double fma_avx2() {
  CAIRN_FMA_LOOP(__m256, _mm256_set1_ps, _mm256_fmadd_ps)
}

// GF/s on all threads now; 0 below AVX2.
double fma_rate(int threads) {
  const cpu::Isa isa = cpu::isa();
  if (isa == cpu::Isa::sse4) return 0;
  const double start = now(threads);
  std::atomic<double> flops = 0;
  parallel_for(threads, 1, [&](int64_t, int64_t) {
    flops.fetch_add(isa == cpu::Isa::avx512 ? fma_avx512() : fma_avx2());
  });
  return flops / (now(threads) - start) / 1e9;
}

// One convolution, prepared with its operands in the layouts that it wants.
class Job {
 public:
  Job(std::string_view kernel, const OpDef& op, Params params, TypeList in, int threads,
      bool deterministic)
      : threads_(threads) {
    const TypeList out = op.infer(params, in);
    const KernelRequest request{op, params, in, out, {}, threads, deterministic};
    const Kernel& k = **std::ranges::find(cpu_backend().kernels(op), kernel, &Kernel::name);
    const OfferResult result = k.offer(request);
    if (auto* refusal = std::get_if<Refusal>(&result))
      fail(ErrorCode::unsupported, fmt::format("{}: {}", kernel, refusal->reason));
    const auto& offer = std::get<KernelOffer>(result);
    kernel_ = k.prepare(request, offer);
    flops_ = op.cost(params, in, out).flops;
    std::mt19937 random(1);
    for (size_t i = 0; i < in.size(); ++i) {
      Tensor dense = Tensor::uninitialized(in[i]);
      for (int64_t k = 0; k < dense.numel(); ++k)
        dense.mutable_data<float>()[k] = float(random() % 2001) / 1000 - 1;
      Tensor& t = memory_.emplace_back(
          Tensor::uninitialized(in[i]));  // exact layouts: as many bytes as dense
      in_.push_back(t.bytes());
      const void* from = dense.bytes();
      void* to = t.mutable_bytes();
      cpu_backend().reorder(in[i], {}, offer.in[i])->run(&from, &to, nullptr);
    }
    out_.push_back(memory_.emplace_back(Tensor::zeros(out[0].shape)).mutable_bytes());
    workspace_ = Storage::allocate(offer.workspace_bytes + 1);
  }
  double time() const {
    const double start = now(threads_);
    kernel_->run(in_.data(), out_.data(), workspace_->data());
    return now(threads_) - start;
  }
  double flops() const { return flops_; }
  std::span<const float> result() const {
    return {static_cast<const float*>(out_[0]), size_t(memory_.back().numel())};
  }
  std::string implementation() const {
    return dynamic_cast<const cpu::onednn::Task&>(*kernel_).implementation();
  }

 private:
  int threads_;
  std::unique_ptr<PreparedKernel> kernel_;
  double flops_ = 0;
  std::vector<Tensor> memory_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  std::shared_ptr<Storage> workspace_;
};

struct Row {
  int64_t kernel, stride, c, k, size;
  int times;  // in the network
};
constexpr Row kResNet50[] = {
    {7, 2, 3, 64, 224, 1},    {1, 1, 64, 64, 56, 1},     {3, 1, 64, 64, 56, 3},
    {1, 1, 64, 256, 56, 4},   {1, 1, 256, 64, 56, 2},    {1, 1, 256, 128, 56, 1},
    {3, 2, 128, 128, 56, 1},  {1, 2, 256, 512, 56, 1},   {1, 1, 128, 512, 28, 4},
    {1, 1, 512, 128, 28, 3},  {3, 1, 128, 128, 28, 3},   {1, 1, 512, 256, 28, 1},
    {3, 2, 256, 256, 28, 1},  {1, 2, 512, 1024, 28, 1},  {1, 1, 256, 1024, 14, 6},
    {1, 1, 1024, 256, 14, 5}, {3, 1, 256, 256, 14, 5},   {1, 1, 1024, 512, 14, 1},
    {3, 2, 512, 512, 14, 1},  {1, 2, 1024, 2048, 14, 1}, {1, 1, 512, 2048, 7, 3},
    {1, 1, 2048, 512, 7, 2},  {3, 1, 512, 512, 7, 2},
};
constexpr const char* kDirections[] = {"forward", "grad_input", "grad_weight"};

Job job(std::string_view kernel, const Row& row, int direction, int64_t batch, int threads,
        bool deterministic) {
  const int64_t pad = row.kernel / 2, out = (row.size + 2 * pad - row.kernel) / row.stride + 1;
  const ops::ConvParams p{{row.stride, row.stride}, {pad, pad}, {pad, pad}};
  const TensorType x{DType::f32, {batch, row.c, row.size, row.size}},
      y{DType::f32, {batch, row.k, out, out}},
      weight{DType::f32, {row.k, row.c, row.kernel, row.kernel}};
  if (direction == 0) return Job(kernel, ops::conv_op, p, {x, weight}, threads, deterministic);
  if (direction == 1)
    return Job(kernel, ops::conv_grad_input_op, ops::ConvGradInputParams{p, {row.size, row.size}},
               {y, weight}, threads, deterministic);
  return Job(kernel, ops::conv_grad_weight_op,
             ops::ConvGradWeightParams{p, {row.kernel, row.kernel}}, {x, y}, threads,
             deterministic);
}

struct Measured {
  double seconds = std::numeric_limits<double>::infinity(), flops = 0;
  std::string implementation;
};

void run(int64_t batch, int threads, int rounds, bool deterministic) {
  set_thread_count(threads);
  Measured best[std::size(kResNet50)][3];
  double peak = 0;
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < std::size(kResNet50); ++i)
      for (int d = 0; d < 3; ++d) {
        if (i == 0 && d == 1) continue;  // nobody asks for the gradient of the picture
        const Job work = job("onednn.conv", kResNet50[i], d, batch, threads, deterministic);
        Measured& m = best[i][d];
        m.flops = work.flops();
        m.implementation = work.implementation();
        for (int repeat = 0; repeat < 4; ++repeat) m.seconds = std::min(m.seconds, work.time());
        peak = std::max(peak, fma_rate(threads));
      }

  fmt::print("{}, {}, {} threads, batch {}; FMA peak {:.1f} GF/s\n", cpu::isa_report().processor,
             name(cpu::isa()), threads, batch, peak);
  fmt::print("{:<22}{:>3}", "kernel/stride c>k@size", "x");
  for (const char* direction : kDirections)
    fmt::print(" | {:<30}", direction + std::string(" GF/s, of peak"));
  double total[3] = {};
  for (size_t i = 0; i < std::size(kResNet50); ++i) {
    const Row& row = kResNet50[i];
    fmt::print(
        "\n{:<22}{:>3}",
        fmt::format("{0}x{0}/{1} {2}>{3}@{4}", row.kernel, row.stride, row.c, row.k, row.size),
        row.times);
    for (int d = 0; d < 3; ++d) {
      const Measured& m = best[i][d];
      const double rate = m.flops / m.seconds / 1e9;
      if (m.flops == 0)
        fmt::print(" | {:<30}", "-");
      else
        fmt::print(" | {:>6.1f} {:>3.0f} % {:<17}", rate, 100 * rate / peak, m.implementation);
      if (m.flops > 0) total[d] += row.times * m.seconds / double(batch);
    }
  }
  fmt::print("\n{:<25}", "ms a picture");
  for (double t : total) fmt::print(" | {:<30.1f}", 1e3 * t);
  fmt::print("\n");
}

constexpr Row kWinograd[] = {
    {3, 1, 64, 64, 56, 3},   {3, 1, 128, 128, 28, 3}, {3, 1, 256, 256, 14, 5},
    {3, 1, 512, 512, 7, 2},  {3, 1, 32, 32, 160, 1},  {3, 1, 64, 64, 80, 1},
    {3, 1, 128, 128, 40, 1}, {3, 1, 256, 256, 20, 1},
};

void run_winograd(int64_t batch, int threads, int rounds, bool deterministic) {
  set_thread_count(threads);
  fmt::print("{}, {}, {} threads, batch {}\n{:<14}", cpu::isa_report().processor, name(cpu::isa()),
             threads, batch, "c>k@size");
  for (const char* direction : kDirections)
    fmt::print(" | {:<38}", direction + std::string(" GF/s, direct, ratio, error"));
  for (const Row& row : kWinograd) {
    fmt::print("\n{:<14}", fmt::format("{}>{}@{}", row.c, row.k, row.size));
    for (int d = 0; d < 3; ++d) {
      const Job ours = job("cpu.winograd", row, d, batch, threads, deterministic),
                direct = job("onednn.conv", row, d, batch, threads, deterministic);
      double best[2] = {1e9, 1e9};
      for (int round = 0; round < rounds; ++round) {
        best[0] = std::min(best[0], ours.time());
        best[1] = std::min(best[1], direct.time());
      }
      double error = 0, square = 0;
      for (size_t i = 0; i < ours.result().size(); ++i) {
        const double y = direct.result()[i];
        error = std::max(error, std::fabs(ours.result()[i] - y));
        square += y * y;
      }
      fmt::print(" | {:>6.1f} {:>6.1f} {:>5.2f} {:>9.1e}{:>9}", ours.flops() / best[0] / 1e9,
                 direct.flops() / best[1] / 1e9, best[1] / best[0],
                 error / std::sqrt(square / double(ours.result().size())), "");
    }
  }
  fmt::print("\n");
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) try {
  int64_t batch = 8;
  int threads = 2, rounds = 5;
  bool deterministic = false, winograd = false;
  CLI::App app("GF/s of the convolutions of ResNet-50");
  app.add_option("--batch", batch)->check(CLI::Range(1, 256));
  app.add_option("--threads", threads)->check(CLI::Range(1, 256));
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 1000));
  app.add_flag("--deterministic", deterministic, "same bits for any number of threads");
  app.add_flag("--winograd", winograd, "beside Winograd's convolution");
  CLI11_PARSE(app, argc, argv);
  (winograd ? cairn::run_winograd : cairn::run)(batch, threads, rounds, deterministic);
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
