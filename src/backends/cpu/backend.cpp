// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/backend.h"

#include <algorithm>
#include <unordered_map>

#include "backends/cpu/elementwise/elementwise.h"
#include "backends/cpu/onednn.h"
#include "backends/cpu/shape/shape.h"
#include "backends/cpu/simd.h"
#include "base/parallel.h"

namespace cairn {
namespace {

class Copy : public PreparedKernel {
 public:
  explicit Copy(int64_t bytes) : bytes_(bytes) {}
  void run(const void* const* in, void* const* out, void*) const override {
    cpu::copy_bytes(out[0], in[0], bytes_);
  }

 private:
  int64_t bytes_;
};

class ReferenceReorder : public PreparedKernel {
 public:
  ReferenceReorder(const TensorType& type, Layout from, Layout to)
      : type_(type), from_(std::move(from)), to_(std::move(to)) {}
  void run(const void* const* in, void* const* out, void*) const override {
    reorder_reference(type_, from_, in[0], to_, out[0]);
  }

 private:
  TensorType type_;
  Layout from_, to_;
};

class CpuBackend : public Backend {
 public:
  CpuBackend() {
#define CAIRN_KERNEL(name) kernels_[cpu::name##_kernel.op].push_back(&cpu::name##_kernel);
#include "backends/cpu/catalog.inc"
#undef CAIRN_KERNEL
    for (const Kernel* kernel : cpu::elementwise_kernels()) kernels_[kernel->op].push_back(kernel);
    for (const Kernel* kernel : cpu::view_kernels()) kernels_[kernel->op].push_back(kernel);
    cpu::limit_highway();
  }
  std::string_view name() const override { return "cpu"; }
  std::span<const Kernel* const> kernels(const OpDef& op) const override {
    const auto it = kernels_.find(&op);
    return it == kernels_.end() ? std::span<const Kernel* const>{} : it->second;
  }
  std::unique_ptr<PreparedKernel> reorder(const TensorType& type, const Layout& from,
                                          const Layout& to) const override {
    if (from == to) return std::make_unique<Copy>(from.bytes(type));
    if (auto fast = cpu::onednn::reorder(type, from, to)) return fast;
    return std::make_unique<ReferenceReorder>(type, from, to);
  }

 private:
  std::unordered_map<const OpDef*, std::vector<const Kernel*>> kernels_;
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

namespace cpu {

bool any_empty(const KernelRequest& request) {
  const auto empty = [](const TensorType& t) { return t.numel() == 0; };
  return std::ranges::any_of(request.in, empty) || std::ranges::any_of(request.out, empty);
}

std::unique_ptr<PreparedKernel> zeros(Types out) {
  class Zeros : public PreparedKernel {
   public:
    explicit Zeros(Types out) {
      for (const TensorType& t : out) bytes_.push_back(size_t(t.bytes()));
    }
    void run(const void* const*, void* const* out, void*) const override {
      for (size_t i = 0; i < bytes_.size(); ++i)
        if (bytes_[i]) std::memset(out[i], 0, bytes_[i]);
    }

   private:
    std::vector<size_t> bytes_;
  };
  return std::make_unique<Zeros>(out);
}

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (to == from) return;
  parallel_for(bytes, int64_t(1) << 18, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                size_t(end - begin));
  });
}

}  // namespace cpu
}  // namespace cairn
