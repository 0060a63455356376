// SPDX-License-Identifier: Apache-2.0
// For tests: runs a kernel on dense values, whatever layouts it wants, and compares with the
// reference.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "backends/cpu/backend.h"
#include "base/parallel.h"

namespace cairn::cpu {

using Values = std::vector<float>;

inline Values random_values(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Values v(static_cast<size_t>(count));
  for (float& x : v) x = uniform(generator);
  return v;
}

// Aligned memory with marks behind it, which show writes beyond the end.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_(bytes), storage_(Storage::allocate(bytes + kMarks)) {
    std::memset(data(), 0xFF, bytes + kMarks);  // NaNs: reading what nobody wrote shows
  }
  std::byte* data() const { return storage_->data(); }
  ~Guarded() {
    for (size_t i = 0; i < kMarks; ++i)
      if (data()[bytes_ + i] != std::byte(0xFF)) {
        ADD_FAILURE() << "wrote " << i << " bytes beyond the end of " << bytes_;
        break;
      }
  }

 private:
  static constexpr size_t kMarks = 64;
  size_t bytes_;
  std::shared_ptr<Storage> storage_;
};

struct Call {
  const OpDef* op;
  Params params;
  TypeList in;  // f32
};
struct Options {
  int threads = 1;
  bool deterministic = false;
  bool in_place = false;  // wherever the offer allows it
};
struct Outcome {
  std::string refusal;  // "" when the kernel ran
  KernelOffer offer;
  std::vector<Values> out;
};

inline std::vector<Values> inputs_of(const Call& call, unsigned seed = 1) {
  std::vector<Values> inputs;
  for (const TensorType& t : call.in) inputs.push_back(random_values(t.numel(), seed++));
  return inputs;
}

// Runs the first kernel of that name.
inline Outcome run_kernel(std::string_view name, const Call& call,
                          const std::vector<Values>& inputs, const Options& options = {}) {
  const TypeList types = call.op->infer(call.params, call.in);
  const KernelRequest request{*call.op,        call.params,          call.in, types, {},
                              options.threads, options.deterministic};
  const Kernel* kernel = nullptr;
  for (const Kernel* k : cpu_backend().kernels(*call.op))
    if (k->name == name) kernel = k;
  if (!kernel) return {"no such kernel"};
  OfferResult result = kernel->offer(request);
  if (auto* refusal = std::get_if<Refusal>(&result)) return {refusal->reason};
  Outcome outcome{{}, std::get<KernelOffer>(result), {}};
  const KernelOffer& offer = outcome.offer;
  const auto prepared = kernel->prepare(request, offer);

  std::vector<Guarded> memory;
  std::vector<const void*> in;
  std::vector<void*> out;
  memory.reserve(inputs.size() + types.size() + 1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    in.push_back(memory.emplace_back(size_t(offer.in[i].bytes(call.in[i]))).data());
    reorder_reference(call.in[i], {}, inputs[i].data(), offer.in[i], memory.back().data());
  }
  for (size_t i = 0; i < types.size(); ++i) {
    out.push_back(nullptr);
    if (options.in_place)
      for (const auto& [from, to] : offer.in_place)
        if (to == int(i)) out[i] = const_cast<void*>(in[size_t(from)]);
    if (!out[i]) out[i] = memory.emplace_back(size_t(offer.out[i].bytes(types[i]))).data();
  }
  const Guarded workspace(offer.workspace_bytes);
  const int before = thread_count();
  set_thread_count(options.threads);
  prepared->run(in.data(), out.data(), workspace.data());
  EXPECT_EQ(thread_count(), options.threads);
  set_thread_count(before);
  for (size_t i = 0; i < types.size(); ++i) {
    Values& dense = outcome.out.emplace_back(size_t(types[i].numel()));
    reorder_reference(types[i], offer.out[i], out[i], {}, dense.data());
  }
  return outcome;
}

inline std::vector<std::vector<double>> run_reference(const Call& call,
                                                      const std::vector<Values>& inputs) {
  std::vector<RefTensor> in, out;
  for (size_t i = 0; i < inputs.size(); ++i)
    in.push_back({call.in[i], {inputs[i].begin(), inputs[i].end()}, {}});
  for (const TensorType& t : call.op->infer(call.params, call.in))
    out.push_back({t, std::vector<double>(size_t(t.numel())), {}});
  call.op->reference(call.params, in, out);
  std::vector<std::vector<double>> values;
  for (RefTensor& t : out) values.push_back(std::move(t.f));
  return values;
}

// Within `tolerance` of the largest value.
inline void expect_near(const Values& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double top = 1e-3;
  for (double w : want) top = std::fmax(top, std::fabs(w));
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::fabs(got[i] - want[i]) <= tolerance * top))
      FAIL() << "element " << i << " of " << got.size() << ": got " << got[i] << ", expected "
             << want[i];
}

}  // namespace cairn::cpu
