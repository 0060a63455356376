// SPDX-License-Identifier: Apache-2.0
// The reference kernel (any operator, any dtype) and the choice among a back end's kernels.
#include <fmt/format.h>

#include "ops/reference.h"
#include "runtime/backend.h"

namespace cairn {
namespace {

class Reference : public PreparedKernel {
 public:
  explicit Reference(const KernelRequest& r)
      : op_(r.op), params_(r.params), in_(r.in.begin(), r.in.end()), out_(r.out.begin(), r.out.end()) {}

  void run(const void* const* in, void* const* out, void*) const override {
    std::vector<RefTensor> inputs, outputs;
    for (size_t i = 0; i < in_.size(); ++i) inputs.push_back(load_reference(in_[i], in[i]));
    for (const TensorType& type : out_) outputs.push_back(empty_reference(type));
    op_.reference(params_, inputs, outputs);
    for (size_t i = 0; i < out_.size(); ++i) store_reference(outputs[i], out[i]);
  }

 private:
  const OpDef& op_;
  Params params_;
  TypeList in_, out_;
};

}  // namespace

const Kernel reference_kernel{
    nullptr, "reference",
    [](const KernelRequest& r) -> OfferResult {
      return KernelOffer{std::vector<Layout>(r.in.size()), std::vector<Layout>(r.out.size())};
    },
    [](const KernelRequest& r, const KernelOffer&) -> std::unique_ptr<PreparedKernel> {
      return std::make_unique<Reference>(r);
    }};

KernelChoice choose_kernel(const Backend& backend, const KernelRequest& request, std::vector<std::string>* refusals) {
  for (const Kernel* kernel : backend.kernels(request.op)) {
    OfferResult result = kernel->offer(request);
    if (auto* offer = std::get_if<KernelOffer>(&result)) {
      CAIRN_CHECK(offer->in.size() == request.in.size() && offer->out.size() == request.out.size(),
                  std::string(kernel->name) + " offered the wrong number of layouts");
      return {kernel, std::move(*offer)};
    }
    if (refusals) refusals->push_back(fmt::format("{}: {}", kernel->name, std::get<Refusal>(result).reason));
  }
  return {&reference_kernel, std::get<KernelOffer>(reference_kernel.offer(request))};
}

}  // namespace cairn
