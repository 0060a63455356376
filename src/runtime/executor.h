// SPDX-License-Identifier: Apache-2.0
// plan → kernel launches. Comes in: a graph that the passes have rewritten. Lowering gives each call a kernel
// and each value a layout and a buffer; buffers get one arena; run() walks the steps.
#pragma once
#include <memory>

#include "core/layout.h"
#include "ir/graph.h"
#include "runtime/backend.h"

namespace cairn {

// A variable's value while plans own it: in the layout that its kernels want.
class BlockedResident : public ResidentValue {
 public:
  BlockedResident(TensorType type, Layout layout);
  BlockedResident(const Tensor& plain, Layout layout);  // repacks
  void share();  // the memory of another with the same bytes, if there is one; never written again
  Tensor to_plain() const override;
  const Layout& layout() const { return layout_; }
  std::byte* data() const { return storage_->data(); }

 private:
  TensorType type_;
  Layout layout_;
  std::shared_ptr<Storage> storage_;
};

// One kernel launch, buffers by index.
struct Step {
  std::string name;  // "conv onednn.conv", for explain and profiles
  std::string path;  // module path of the call
  CallSite site;
  std::unique_ptr<PreparedKernel> kernel;
  std::vector<int> in, out;
  int workspace = -1;
  std::vector<std::pair<int, int>> in_place;  // operand positions
  std::vector<std::string> refusals;
  double flops = 0, bytes = 0;
};

}  // namespace cairn
