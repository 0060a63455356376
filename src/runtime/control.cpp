// SPDX-License-Identifier: Apache-2.0
#include "runtime/control.h"

#include "autodiff/control.h"
#include "ops/catalog.h"

namespace cairn {
namespace {

class ControlKernel : public PreparedKernel {
 public:
  ControlKernel(Types in, Types out) : in_(in.begin(), in.end()), out_(out.begin(), out.end()) {}

 protected:
  // Operands as tensors over the plan's own memory.
  std::vector<Tensor> borrow(const void* const* in, size_t from) const {
    std::vector<Tensor> tensors;
    for (size_t i = from; i < in_.size(); ++i) {
      auto storage = Storage::borrow(const_cast<void*>(in[i]), size_t(in_[i].bytes()), {});
      tensors.push_back(Tensor::view(std::move(storage), in_[i], dense_strides(in_[i].shape)));
    }
    return tensors;
  }
  void give(const std::vector<Tensor>& results, void* const* out) const {
    for (size_t i = 0; i < out_.size(); ++i)
      if (out_[i].bytes() > 0) std::memcpy(out[i], results[i].dense().bytes(), size_t(out_[i].bytes()));
  }
  TypeList in_, out_;
};

class CondKernel : public ControlKernel {
 public:
  CondKernel(const ops::CondParams& p, Types in, Types out, const CompileOptions& options)
      : ControlKernel(in, out), then_(p.then_graph, options), else_(p.else_graph, options) {}
  void run(const void* const* in, void* const* out, void*) const override {
    Plan& plan = *static_cast<const bool*>(in[0]) ? then_ : else_;
    give(plan.run(borrow(in, 1)), out);
  }

 private:
  mutable Plan then_, else_;  // a plan runs on one thread, as the step that holds it does
};

class WhileKernel : public ControlKernel {
 public:
  WhileKernel(const ops::WhileParams& p, Types in, Types out, const CompileOptions& options)
      : ControlKernel(in, out), condition_(p.condition, options), body_(p.body, options) {}
  void run(const void* const* in, void* const* out, void*) const override {
    auto values = borrow(in, 0);
    while (condition_.run(values)[0].item() != 0) {
      auto next = body_.run(values);
      std::move(next.begin(), next.end(), values.begin());
    }
    give(values, out);
  }

 private:
  mutable Plan condition_, body_;
};

}  // namespace

bool is_control(const OpDef& op) { return &op == &ops::cond_op || &op == &ops::while_loop_op; }

std::unique_ptr<PreparedKernel> control_kernel(const Node& node, Types in, Types out, const CompileOptions& options) {
  if (node.op == &ops::cond_op)
    return std::make_unique<CondKernel>(node.params.as<ops::CondParams>(), in, out, options);
  return std::make_unique<WhileKernel>(node.params.as<ops::WhileParams>(), in, out, options);
}

}  // namespace cairn
