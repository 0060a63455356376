// SPDX-License-Identifier: Apache-2.0
// oneDNN behind one door: this pair alone includes dnnl.hpp. Layouts become descriptors, primitives
// become prepared kernels. Equal primitives are shared by oneDNN's own cache, which is keyed by all
// that matters (descriptors, attributes, threads, instruction set), so asking twice costs little.
#pragma once
#include <dnnl.hpp>

#include "runtime/backend.h"

namespace cairn::cpu::onednn {

const dnnl::engine& engine();

// Throws dnnl::error when oneDNN has no such type or layout.
dnnl::memory::desc desc(const TensorType& type, const Layout& layout);
dnnl::memory::desc desc(const dnnl::memory::dims& dims,
                        std::string_view tag);  // f32, oneDNN's letters
// Attributes with the scratchpad taken from the kernel's workspace. All primitives here use them.
dnnl::primitive_attr attributes();

// What a primitive reads or writes.
struct Argument {
  int name;     // DNNL_ARG_SRC, …
  int operand;  // input i as i, output o as ~o
  dnnl::memory::desc desc;
  int64_t step = 0;  // bytes from one record to the next; 0: the operand has no axis of records
};
struct Call {
  dnnl::primitive primitive;
  std::vector<Argument> arguments;
  size_t scratch_bytes = 0;
  std::string implementation;  // oneDNN's name for it, e.g. "jit:avx2"
};
template <class PrimitiveDesc>
Call make_call(const PrimitiveDesc& pd, std::vector<Argument> arguments) {
  return {dnnl::primitive(pd.get()), std::move(arguments), pd.scratchpad_desc().get_size(),
          pd.impl_info_str()};
}
// Makes the call for so many records (the batch of a convolution, the rows of a product).
using Build = std::function<Call(int64_t records)>;

// A oneDNN primitive as a prepared kernel. Either one call on all threads; or, where the bits must
// not depend on the number of threads, fixed parts of the records, each on one thread. An output
// without an axis of records is then the sum of the parts, added in order. (Measured over
// ResNet-50: weight gradients take an eighth longer, and up to 64 MB.)
class Task : public PreparedKernel {
 public:
  // Throws dnnl::error when oneDNN refuses.
  Task(int threads, bool deterministic, int64_t records, const Build& build);
  void run(const void* const* in, void* const* out, void* workspace) const override;
  size_t workspace_bytes() const {
    return sum_bytes_ * (parts_.size() - 1) + scratch_bytes_ * size_t(workers_);
  }
  const std::string& implementation() const { return calls_[0].implementation; }

 private:
  struct Part {
    size_t call;
    int64_t first;  // record
  };
  void execute(const Part& part, const void* const* in, void* const* out, void* sum,
               void* scratch) const;

  std::vector<Call> calls_;
  std::vector<Part> parts_;
  int call_threads_, workers_ = 1;
  size_t sum_bytes_ = 0, scratch_bytes_ = 0;
};

// What oneDNN said, for a Refusal.
std::string reason(const dnnl::error& error);

// A copy between layouts (f32, i32, 8 bits); null when oneDNN cannot.
std::unique_ptr<PreparedKernel> reorder(const TensorType& type, const Layout& from,
                                        const Layout& to);

}  // namespace cairn::cpu::onednn
