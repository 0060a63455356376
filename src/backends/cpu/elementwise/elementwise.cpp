// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/elementwise/elementwise.h"

#include <cairn/ops.h>

#include <algorithm>
#include <memory>

#include "backends/cpu/backend.h"
#include "backends/cpu/elementwise/vm.h"
#include "backends/cpu/planes.h"
#include "ops/catalog.h"

namespace cairn::cpu {
namespace {

// The results of one shape, and what computes them.
struct Part {
  std::vector<int> results;
  std::vector<Vm> vms;  // one; or two, for false and true
  int condition = -1;   // the input that chooses
  const Vm& vm(const void* const* in) const {
    return vms[condition < 0 ? 0 : size_t(*static_cast<const bool*>(in[condition]))];
  }
};

// An input that alone decides selects of whole tensors, as when an update is skipped: no need to
// look at it more than once. −1: there is none.
int single_condition(const ops::FusedProgram& program, Types in) {
  for (const auto& c : program.calls)
    if (c.op == &ops::select_op && c.args[0] < 0 && in[size_t(-1 - c.args[0])].numel() == 1)
      return -1 - c.args[0];
  return -1;
}

ops::FusedProgram program_of(const KernelRequest& r) {
  ops::FusedProgram program;
  if (&r.op == &ops::fused_elementwise_op) {
    program = ops::parse_program(r.params.as<ops::FusedElementwiseParams>().program);
    ops::infer_program(program, r.in);
  } else {
    program = {{{&r.op, r.params, {}, r.out[0]}}, {0}};
    for (size_t k = 0; k < r.in.size(); ++k) program.calls[0].args.push_back(-1 - int(k));
  }
  return program;
}

std::variant<std::vector<Part>, Refusal> compile(const KernelRequest& r, const Layout& layout,
                                                 const Shape& full) {
  const ops::FusedProgram program = program_of(r);
  std::vector<std::pair<Shape, std::vector<int>>> groups;
  for (size_t k = 0; k < r.out.size(); ++k) {
    const auto it =
        std::ranges::find(groups, r.out[k].shape, &std::pair<Shape, std::vector<int>>::first);
    (it != groups.end() ? it->second
                        : groups.emplace_back(r.out[k].shape, std::vector<int>()).second)
        .push_back(int(k));
  }
  std::vector<Part> parts;
  for (auto& [shape, results] : groups) {
    ops::FusedProgram part{program.calls, {}};
    for (int k : results) part.results.push_back(program.results[size_t(k)]);
    Part& made = parts.emplace_back(Part{results, {}, single_condition(part, r.in)});
    for (const bool value : {false, true}) {
      auto vm = Vm::compile(part, r.in, shape == full ? layout : Layout(), {made.condition, value});
      if (auto* refusal = std::get_if<Refusal>(&vm)) return std::move(*refusal);
      made.vms.push_back(std::get<Vm>(std::move(vm)));
      if (made.condition < 0) break;
    }
  }
  return parts;
}

// The shape that most of the work is done on.
Shape largest(Types out) { return std::ranges::max_element(out, {}, &TensorType::numel)->shape; }

OfferResult offer(const KernelRequest& r) {
  const Shape full = largest(r.out);
  const Layout layout = common_layout(r, full, [&](const Layout& l) { return l.exact(full); });
  auto parts = compile(r, layout, full);
  if (auto* refusal = std::get_if<Refusal>(&parts)) return std::move(*refusal);
  KernelOffer offer = offer_layout(r, full, layout);
  const auto& list = std::get<std::vector<Part>>(parts);
  for (const Part& p : list)
    for (const Vm& vm : p.vms)
      offer.workspace_bytes = std::max(offer.workspace_bytes, vm.workspace_bytes());
  if (list.size() > 1) return offer;  // one part may read what another would write over
  for (const auto& pair : list[0].vms.front().in_place())
    if (std::ranges::count(list[0].vms.back().in_place(), pair)) offer.in_place.push_back(pair);
  return offer;
}

class Elementwise : public PreparedKernel {
 public:
  explicit Elementwise(std::vector<Part> parts) : parts_(std::move(parts)) {}
  void run(const void* const* in, void* const* out, void* workspace) const override {
    if (parts_.size() == 1) return parts_[0].vm(in).run(in, out, workspace);
    for (const Part& p : parts_) {
      std::vector<void*> results;
      for (int k : p.results) results.push_back(out[k]);
      p.vm(in).run(in, results.data(), workspace);
    }
  }

 private:
  std::vector<Part> parts_;
};

std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer& o) {
  const Shape full = largest(r.out);
  const auto it = std::ranges::find(r.out, full, &TensorType::shape);
  auto parts = compile(r, o.out[size_t(it - r.out.begin())], full);
  CAIRN_CHECK(parts.index() == 0, "a program was refused after it had been accepted");
  return std::make_unique<Elementwise>(std::get<0>(std::move(parts)));
}

}  // namespace

extern const Kernel fused_elementwise_kernel{&ops::fused_elementwise_op, "cpu.strips", offer,
                                             prepare};

std::vector<const Kernel*> elementwise_kernels() {
  static const auto kernels = [] {
    std::vector<Kernel> list;
    for (const OpDef* op : all_ops())
      if (op->fusion.kind == FusionClass::elementwise && strip_op(op->name) != StripOp::none)
        list.push_back({op, "cpu.strips", offer, prepare});
    return list;
  }();
  std::vector<const Kernel*> out;
  for (const Kernel& k : kernels) out.push_back(&k);
  return out;
}

}  // namespace cairn::cpu
