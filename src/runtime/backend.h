// SPDX-License-Identifier: Apache-2.0
// The back-end contract: a device offers kernels; the runtime asks, chooses, prepares once and runs often.
// Everything a back end owes is on this page. (trail marker 16's contract)
#pragma once
#include <cairn/extend/op.h>

#include <variant>

#include "core/layout.h"

namespace cairn {

// One call as a kernel sees it before it runs.
struct KernelRequest {
  const OpDef& op;
  const Params& params;
  Types in, out;
  // What each input's layout is now; nullopt: not settled yet, the kernel may choose (a variable whose
  // memory the plan owns). Fewer entries than inputs: the rest are dense.
  std::span<const std::optional<Layout>> in_layouts;
  int threads = 1;
  bool deterministic = false;  // same bits for any number of threads: refuse if you cannot
  bool exact = false;          // sums as they are written: refuse algorithms such as Winograd's
  // Dense values of the inputs that never change, null for the others; fewer entries than inputs: the
  // rest change. `prepare` may work on them ahead, and must not keep the pointers.
  std::span<const void* const> constants = {};

  // The layout of input i as the request states it; dense when not settled.
  Layout layout(size_t i) const { return i < in_layouts.size() ? in_layouts[i].value_or(Layout()) : Layout(); }
  const void* constant(size_t i) const { return i < constants.size() ? constants[i] : nullptr; }
  bool settled(size_t i) const { return i >= in_layouts.size() || in_layouts[i].has_value(); }
};

// Yes: the layouts the kernel wants for its inputs (the runtime reorders where they differ) and gives.
struct KernelOffer {
  std::vector<Layout> in, out;
  size_t workspace_bytes = 0;                      // scratch, 64-byte aligned, undefined content
  std::vector<std::pair<int, int>> in_place = {};  // (input, output): output may be written over input
};
// No: why, in words for the error and `cairn opt --explain`.
struct Refusal { std::string reason; };
using OfferResult = std::variant<KernelOffer, Refusal>;

// Ready to run: immutable, so it may be shared; run() is called from the engine's thread, and uses
// parallel_for inside. Pointers are 64-byte aligned and follow the offer's layouts.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  virtual void run(const void* const* in, void* const* out, void* workspace) const = 0;
};

struct Kernel {
  const OpDef* op;
  std::string_view name;  // "onednn.conv", "cpu.rows", …
  OfferResult (*offer)(const KernelRequest&);
  std::unique_ptr<PreparedKernel> (*prepare)(const KernelRequest&, const KernelOffer&);
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // In order of preference; the reference (any op, any dtype, dense) is implied after the last.
  virtual std::span<const Kernel* const> kernels(const OpDef& op) const = 0;
  // Copies between two layouts of one type.
  virtual std::unique_ptr<PreparedKernel> reorder(const TensorType& type, const Layout& from, const Layout& to) const = 0;
};

// The CPU back end; defined in backends/cpu/backend.cpp.
const Backend& cpu_backend();

// The kernel that always accepts: dense, every dtype, runs OpDef::reference. Slow, single source of truth.
extern const Kernel reference_kernel;

// The first kernel of the back end that accepts, with its offer; the reference when none does.
// `refusals` (optional) collects "name: reason" of those asked before.
struct KernelChoice {
  const Kernel* kernel;
  KernelOffer offer;
};
KernelChoice choose_kernel(const Backend& backend, const KernelRequest& request,
                           std::vector<std::string>* refusals = nullptr);

}  // namespace cairn
