// SPDX-License-Identifier: Apache-2.0
// For tests of our own kernels: any dtype, any layout, each instruction set of this machine.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backends/cpu/backend.h"
#include "base/parallel.h"
#include "base/random.h"
#include "core/strided.h"
#include "hwy/highway.h"

namespace cairn::cpu {

// Calls body(name) once for each instruction set that kernels were made for and this machine has.
template <class Body>
void for_each_target(Body&& body) {
  cpu_backend();
  for (const int64_t target : {HWY_SSE4, HWY_AVX2, HWY_AVX3}) {
    hwy::SetSupportedTargetsForTest(0);
    if (!(hwy::SupportedTargets() & target)) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

using Bytes = std::vector<std::byte>;
struct Dense {  // row-major
  TensorType type;
  Bytes bytes;
  double at(int64_t k) const {
    return visit_dtype(type.dtype, [&](auto tag) {
      decltype(tag) v;
      std::memcpy(&v, bytes.data() + size_t(k) * sizeof v, sizeof v);
      return load_as<double>(v);
    });
  }
  void set(int64_t k, double value) {
    visit_dtype(type.dtype, [&](auto tag) {
      using T = decltype(tag);
      T v;
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
        v = saturate<T>(value);
      else
        v = store_as<T>(value);
      std::memcpy(bytes.data() + size_t(k) * sizeof v, &v, sizeof v);
    });
  }
};
inline Dense dense_of(const TensorType& type) { return {type, Bytes(size_t(type.bytes()))}; }
inline Dense random_dense(const TensorType& type, uint64_t seed, double low = -2, double high = 2) {
  Dense d = dense_of(type);
  Random random(seed);
  for (int64_t k = 0; k < type.numel(); ++k)
    d.set(k, type.dtype == DType::boolean ? double(random.below(2)) : random.uniform(low, high));
  return d;
}
inline std::vector<Dense> random_inputs(const std::vector<SampleInput>& inputs, uint64_t seed) {
  std::vector<Dense> out;
  for (const SampleInput& s : inputs) out.push_back(random_dense(s.type, seed++, s.low, s.high));
  return out;
}

struct How {
  std::vector<std::optional<Layout>> layouts = {};  // of the inputs, as the request states them
  int threads = 1;
  bool deterministic = false;
  bool in_place = false;  // wherever the offer allows it, each input once
};
struct Ran {
  std::string refusal;  // "" when the kernel ran
  KernelOffer offer;
  std::vector<Dense> out;
};

inline TypeList types_of(const std::vector<Dense>& values) {
  TypeList types;
  for (const Dense& d : values) types.push_back(d.type);
  return types;
}

// The first kernel for the operator whose name starts so.
inline const Kernel* kernel_named(const OpDef& op, std::string_view prefix) {
  for (const Kernel* k : cpu_backend().kernels(op))
    if (k->name.starts_with(prefix)) return k;
  return nullptr;
}

// Runs a kernel with every operand in the layout that it offers; memory is surrounded by marks.
inline Ran run_on(const Kernel* kernel, const OpDef& op, const Params& params,
                  const std::vector<Dense>& inputs, const How& how = {}) {
  if (!kernel) return {"no such kernel", {}, {}};
  constexpr size_t kMarks = 64;
  const TypeList in = types_of(inputs), out = op.infer(params, in);
  const KernelRequest request{op, params, in, out, how.layouts, how.threads, how.deterministic};
  OfferResult result = kernel->offer(request);
  if (auto* refusal = std::get_if<Refusal>(&result)) return {refusal->reason, {}, {}};
  Ran ran{{}, std::get<KernelOffer>(result), {}};
  const KernelOffer& offer = ran.offer;
  const auto prepared = kernel->prepare(request, offer);
  std::vector<std::shared_ptr<Storage>> memory;
  const auto allocate = [&](size_t bytes) {
    memory.push_back(Storage::allocate(bytes + 2 * kMarks));
    std::memset(memory.back()->data(), 0xFF, bytes + 2 * kMarks);
    return memory.back()->data() + kMarks;
  };
  const auto check_marks = [&](const std::byte* data, size_t bytes) {
    for (size_t k = 0; k < kMarks; ++k) {
      EXPECT_EQ(data[bytes + k], std::byte(0xFF))
          << "wrote " << k << " bytes beyond the end of " << bytes;
      EXPECT_EQ(data[-1 - int64_t(k)], std::byte(0xFF)) << "wrote before the start";
    }
  };
  std::vector<const void*> from;
  std::vector<void*> to(out.size());
  std::vector<std::byte*> inputs_at;
  for (size_t k = 0; k < in.size(); ++k) {
    inputs_at.push_back(allocate(size_t(offer.in[k].bytes(in[k]))));
    reorder_reference(in[k], {}, inputs[k].bytes.data(), offer.in[k], inputs_at.back());
    from.push_back(inputs_at.back());
  }
  std::vector<char> taken(in.size());
  for (size_t k = 0; k < out.size(); ++k) {
    if (how.in_place)
      for (const auto& [i, o] : offer.in_place)
        if (o == int(k) && !to[k] && !taken[size_t(i)]) {
          taken[size_t(i)] = true;
          to[k] = inputs_at[size_t(i)];
        }
    if (!to[k]) to[k] = allocate(size_t(offer.out[k].bytes(out[k])));
  }
  std::byte* workspace = allocate(offer.workspace_bytes);
  const int before = thread_count();
  set_thread_count(how.threads);
  prepared->run(from.data(), to.data(), workspace);
  set_thread_count(before);
  for (size_t k = 0; k < in.size(); ++k)
    check_marks(inputs_at[k], size_t(offer.in[k].bytes(in[k])));
  check_marks(workspace, offer.workspace_bytes);
  for (size_t k = 0; k < out.size(); ++k) {
    auto* bytes = static_cast<const std::byte*>(to[k]);
    check_marks(bytes, size_t(offer.out[k].bytes(out[k])));
    Dense dense = dense_of(out[k]);
    reorder_reference(out[k], offer.out[k], bytes, {}, dense.bytes.data());
    if (!offer.out[k].exact(out[k].shape)) {  // what pads a block is zero
      Bytes again(size_t(offer.out[k].bytes(out[k])));
      reorder_reference(out[k], {}, dense.bytes.data(), offer.out[k], again.data());
      EXPECT_EQ(std::memcmp(again.data(), bytes, again.size()), 0) << "padding of result " << k;
    }
    ran.out.push_back(std::move(dense));
  }
  return ran;
}
inline std::vector<Dense> run_reference_on(const OpDef& op, const Params& params,
                                           const std::vector<Dense>& inputs) {
  return run_on(&reference_kernel, op, params, inputs).out;
}

inline bool same_bits(const std::vector<Dense>& a, const std::vector<Dense>& b) {
  bool same = a.size() == b.size();
  for (size_t k = 0; same && k < a.size(); ++k) same = a[k].bytes == b[k].bytes;
  return same;
}

// Floats within `relative` of the element and `absolute`; NaN equals NaN; all else equal.
inline void expect_close(const std::vector<Dense>& got, const std::vector<Dense>& want,
                         double relative, double absolute) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t r = 0; r < got.size(); ++r) {
    ASSERT_EQ(to_string(got[r].type), to_string(want[r].type));
    const bool real = is_float(got[r].type.dtype);
    for (int64_t k = 0; k < got[r].type.numel(); ++k) {
      const double g = got[r].at(k), w = want[r].at(k);
      if (g == w || (std::isnan(g) && std::isnan(w))) continue;
      if (!(real && std::fabs(g - w) <= relative * std::fabs(w) + absolute)) {
        ADD_FAILURE() << "result " << r << " element " << k << " of " << got[r].type.numel()
                      << ": got " << g << ", expected " << w;
        break;
      }
    }
  }
}

}  // namespace cairn::cpu
