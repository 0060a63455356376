// SPDX-License-Identifier: Apache-2.0
// How near elementwise programs and batch norms come to the memory's speed: GB/s of least traffic
// (inputs read once, outputs written once), and the share of what copying a tensor of that size
// reaches in the same round.
//
//   elementwise [--batch 8] [--threads 2] [--rounds 9] [--only add]
//
// The best of all rounds counts, as other programs on the machine only ever slow one down.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>

#include "backends/cpu/backend.h"
#include "backends/cpu/isa.h"
#include "base/parallel.h"
#include "ops/catalog.h"
#include "ops/fused/norm_act.h"
#include "ops/fused/program.h"
#include "ops/nn/norm.h"

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One call, prepared; pictures lie in `layout`.
class Job {
 public:
  Job(const OpDef& op, Params params, TypeList in, const Layout& layout, bool in_place,
      int threads) {
    const TypeList out = op.infer(params, in);
    std::vector<std::optional<Layout>> layouts;
    for (const auto& t : in)
      layouts.push_back(t.shape == in[0].shape && t.shape.rank() == 4 ? layout : Layout());
    const KernelRequest request{op, params, in, out, layouts, threads, false};
    const KernelChoice choice = choose_kernel(cpu_backend(), request);
    name_ = choice.kernel->name;
    kernel_ = choice.kernel->prepare(request, choice.offer);
    for (const auto& t : in) bytes_ += double(t.bytes());
    for (const auto& t : out) bytes_ += double(t.bytes());
    std::mt19937 random(1);
    for (const TensorType& type : in) {
      Tensor& t = memory_.emplace_back(Tensor::uninitialized(type));
      if (type.dtype == DType::f32)
        for (int64_t k = 0; k < t.numel(); ++k)
          t.mutable_data<float>()[k] = float(random() % 2001) / 1000 - 0.9f;
      else
        std::memset(t.mutable_bytes(), 1, size_t(type.bytes()));
      in_.push_back(t.bytes());
    }
    std::vector<char> taken(in.size());
    for (size_t k = 0; k < out.size(); ++k) {
      void* to = nullptr;
      for (const auto& [i, o] : choice.offer.in_place)
        if (in_place && o == int(k) && !to && !taken[size_t(i)])
          taken[size_t(i)] = true, to = memory_[size_t(i)].mutable_bytes();
      out_.push_back(
          to ? to
             : memory_.emplace_back(Tensor::zeros(out[k].shape, out[k].dtype)).mutable_bytes());
    }
    workspace_ = Storage::allocate(choice.offer.workspace_bytes + 1);
  }
  double time() const {
    const auto start = Clock::now();
    kernel_->run(in_.data(), out_.data(), workspace_->data());
    return seconds_since(start);
  }
  double bytes() const { return bytes_; }
  std::string_view name() const { return name_; }

 private:
  std::vector<Tensor> memory_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  std::shared_ptr<Storage> workspace_;
  std::unique_ptr<PreparedKernel> kernel_;
  std::string_view name_;
  double bytes_ = 0;
};

struct Case {
  std::string name;
  const OpDef* op;
  Params params;
  TypeList in;
  bool in_place = false;
};

std::vector<Case> cases(const Shape& shape) {
  const TensorType x{DType::f32, shape}, c{DType::f32, {shape[1]}},
      cv{DType::f32, {shape[1], 1, 1}}, one{DType::f32, {}};
  const auto fused = [](const char* text) { return Params(ops::FusedElementwiseParams{text}); };
  const OpDef* program = &ops::fused_elementwise_op;
  return {
      {"relu", &ops::relu_op, {}, {x}},
      {"relu in place", &ops::relu_op, {}, {x}, true},
      {"add", &ops::add_op, {}, {x, x}},
      {"add in place", &ops::add_op, {}, {x, x}, true},
      {"relu_grad", &ops::relu_grad_op, {}, {x, x}},
      {"exp", &ops::exp_op, {}, {x}},
      {"gelu", &ops::gelu_op, {}, {x}},
      {"silu", &ops::silu_op, {}, {x}},
      {"add relu", program, fused("t0 = add(i0, i1); t1 = relu(t0) -> t1"), {x, x}},
      {"scale shift relu",
       program,
       fused("t0 = mul(i0, i1); t1 = add(t0, i2); t2 = relu(t1) -> t2"),
       {x, cv, cv}},
      {"greater select",
       program,
       fused("t0 = greater(i0, i2); t1 = select(t0, i1, i2) -> t1"),
       {x, x, one}},
      {"clamp gradient",
       program,
       fused("t0 = less_equal(i0, i1); t1 = greater_equal(i0, i2); t2 = logical_and(t1, t0); "
             "t3 = select(t2, i3, i2) -> t3"),
       {x, one, one, x}},
      {"momentum",
       program,  // and nothing when the loss was not finite
       fused("t0 = mul(i0, i1); t1 = add(i2, t0); t2 = mul(i3, i4); t3 = add(t2, t1); t4 = "
             "select(i5, t3, i3); "
             "t5 = mul(i6, t3); t6 = sub(i0, t5); t7 = select(i5, t6, i0) -> t4, t7"),
       {x, one, x, x, one, {DType::boolean, {}}, one},
       true},
      {"adamw",
       program,
       fused("t0 = mul(i2, i4); t1 = mul(i1, i5); t2 = add(t0, t1); t3 = mul(i3, i6); t4 = "
             "square(i1); t5 = mul(t4, i7); "
             "t6 = add(t3, t5); t7 = sqrt(t6); t8 = mul(t7, i8); t9 = add(t8, i9); t10 = div(t2, "
             "t9); t11 = mul(t10, i10); "
             "t12 = mul(i0, i11); t13 = sub(t12, t11) -> t13, t2, t6"),
       {x, x, x, x, one, one, one, one, one, one, one, one},
       true},
      {"batch_norm_train", &ops::batch_norm_train_op, ops::NormParams{}, {x, c, c}},
      {"batch_norm_act_train",
       &ops::batch_norm_act_train_op,
       ops::NormActParams{1e-5, "relu", false},
       {x, c, c}},
      {"… with residual",
       &ops::batch_norm_act_train_op,
       ops::NormActParams{1e-5, "relu", true},
       {x, c, c, x}},
      {"batch_norm_grad", &ops::batch_norm_grad_op, ops::NormParams{}, {x, x, c, c, c}},
      {"batch_norm_act_grad",
       &ops::batch_norm_act_grad_op,
       ops::NormActParams{1e-5, "relu", false},
       {x, x, x, c, c, c}},
      {"… with residual",
       &ops::batch_norm_act_grad_op,
       ops::NormActParams{1e-5, "relu", true},
       {x, x, x, c, c, c}},
      {"batch_norm_infer", &ops::batch_norm_infer_op, ops::NormParams{}, {x, c, c, c, c}},
  };
}

void measure(const Shape& shape, const Layout& layout, int threads, int rounds,
             const std::string& only) {
  fmt::print("\n{} {} ({:.1f} MB a tensor)\n{:26}{:>10}{:>10}{:>10}\n", to_string(shape),
             layout.tag(4), double(shape.numel()) * 4e-6, "", "ms", "GB/s", "of copy");
  for (Case& c : cases(shape)) {
    if (c.name.find(only) == std::string::npos) continue;
    const Job job(*c.op, c.params, c.in, layout, c.in_place, threads);
    Tensor from = Tensor::ones(shape), to = Tensor::zeros(shape);
    double best = std::numeric_limits<double>::infinity(), copy = best;
    for (int r = 0; r < rounds; ++r) {
      const auto start = Clock::now();
      cpu::copy_bytes(to.mutable_bytes(), from.bytes(), shape.numel() * 4);
      copy = std::min(copy, seconds_since(start));
      best = std::min(best, job.time());
    }
    const double rate = job.bytes() / best, copy_rate = double(shape.numel()) * 8 / copy;
    fmt::print("{:26}{:>10.3f}{:>10.1f}{:>9.0f}%\n", c.name, best * 1e3, rate / 1e9,
               100 * rate / copy_rate);
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  int64_t batch = 8;
  int threads = thread_count(), rounds = 9;
  std::string only;
  CLI::App app("Elementwise programs and batch norms against the memory's speed");
  app.add_option("--batch", batch);
  app.add_option("--threads", threads);
  app.add_option("--rounds", rounds);
  app.add_option("--only", only, "names that contain this");
  CLI11_PARSE(app, argc, argv);
  set_thread_count(threads);
  fmt::print("{}, {}, {} threads\n", cpu::isa_report().processor, name(cpu::isa()), threads);
  const Layout blocked = Layout::parse(cpu::channel_block() == 16 ? "aBcd16b" : "aBcd8b");
  for (const Shape& shape :
       {Shape{batch, 256, 56, 56}, Shape{batch, 64, 56, 56}, Shape{batch, 256, 14, 14}})
    for (const Layout& layout : {blocked, Layout()}) measure(shape, layout, threads, rounds, only);
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  try {
    return cairn::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
