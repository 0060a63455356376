// SPDX-License-Identifier: Apache-2.0
#include "runtime/interpreter.h"

#include <list>
#include <mutex>
#include <unordered_map>

#include "base/parallel.h"
#include "base/random.h"

namespace cairn {
namespace {

thread_local EagerRules rules_now;

// A kernel prepared for one operator, parameters, types, thread count.
struct Prepared {
  const OpDef* op;
  Params params;
  TypeList in, out;
  int threads;
  EagerRules rules;
  KernelOffer offer;
  std::unique_ptr<PreparedKernel> kernel;
  std::vector<std::unique_ptr<PreparedKernel>> in_reorders, out_reorders;  // null where dense already
};

class Cache {
 public:
  static constexpr size_t kCapacity = 4096;

  std::shared_ptr<const Prepared> find(const OpCall& call) {
    TypeList in;
    for (const Tensor& t : call.inputs) in.push_back(t.type());
    const int threads = thread_count();
    uint64_t key = mix(uint64_t(reinterpret_cast<uintptr_t>(&call.op)), call.params.hash());
    for (const auto& t : in) {
      key = mix(key, uint64_t(t.dtype) + 16);
      for (int64_t n : t.shape) key = mix(key, uint64_t(n));
    }
    key = mix(key, uint64_t(threads) * 4 + rules_now.deterministic * 2 + rules_now.exact);
    {
      std::lock_guard lock(mutex_);
      if (const auto it = map_.find(key); it != map_.end()) {
        const Prepared& p = *it->second;
        if (p.op == &call.op && p.in == in && p.threads == threads && p.rules == rules_now &&
            p.params == call.params)
          return it->second;
      }
    }
    auto p = prepare(call, std::move(in), threads);
    std::lock_guard lock(mutex_);
    if (map_.size() >= kCapacity) map_.clear();
    map_[key] = p;
    return p;
  }

 private:
  static std::shared_ptr<const Prepared> prepare(const OpCall& call, TypeList in, int threads) {
    auto p = std::make_shared<Prepared>(Prepared{&call.op, call.params, std::move(in),
                                                 {call.output_types.begin(), call.output_types.end()},
                                                 threads, rules_now, {}, nullptr, {}, {}});
    const std::vector<std::optional<Layout>> dense(p->in.size(), Layout());
    const KernelRequest request{call.op, p->params, p->in, p->out, dense, threads, rules_now.deterministic,
                                rules_now.exact};
    auto choice = choose_kernel(cpu_backend(), request);
    p->offer = std::move(choice.offer);
    p->kernel = choice.kernel->prepare(request, p->offer);
    for (size_t i = 0; i < p->in.size(); ++i)
      p->in_reorders.push_back(p->offer.in[i].is_dense() ? nullptr
                                                         : cpu_backend().reorder(p->in[i], Layout(), p->offer.in[i]));
    for (size_t i = 0; i < p->out.size(); ++i)
      p->out_reorders.push_back(p->offer.out[i].is_dense()
                                    ? nullptr
                                    : cpu_backend().reorder(p->out[i], p->offer.out[i], Layout()));
    return p;
  }

  std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<const Prepared>> map_;
};

class Eager : public Interpreter {
 public:
  std::vector<Tensor> apply(const OpCall& call) override {
    if (call.op.view)
      if (auto view = as_view(call)) return {std::move(*view)};
    const auto p = cache_.find(call);
    std::vector<Tensor> keep;                           // dense copies
    std::vector<std::shared_ptr<Storage>> scratch;      // blocked copies
    std::vector<const void*> in;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      keep.push_back(call.inputs[i].dense());
      in.push_back(keep.back().bytes());
      if (p->in_reorders[i]) {
        scratch.push_back(Storage::allocate(size_t(p->offer.in[i].bytes(p->in[i]))));
        void* to[] = {scratch.back()->data()};
        p->in_reorders[i]->run(&in[i], to, nullptr);
        in[i] = to[0];
      }
    }
    std::vector<Tensor> results;
    std::vector<void*> out;
    for (size_t i = 0; i < p->out.size(); ++i) {
      results.push_back(Tensor::uninitialized(p->out[i]));
      out.push_back(results[i].mutable_bytes());
      if (p->out_reorders[i]) {
        scratch.push_back(Storage::allocate(size_t(p->offer.out[i].bytes(p->out[i]))));
        out[i] = scratch.back()->data();
      }
    }
    std::shared_ptr<Storage> workspace;
    if (p->offer.workspace_bytes) workspace = Storage::allocate(p->offer.workspace_bytes);
    p->kernel->run(in.data(), out.data(), workspace ? workspace->data() : nullptr);
    for (size_t i = 0; i < p->out.size(); ++i)
      if (p->out_reorders[i]) {
        const void* from[] = {out[i]};
        void* to[] = {results[i].mutable_bytes()};
        p->out_reorders[i]->run(from, to, nullptr);
      }
    return results;
  }

  Tensor read(const Variable& variable) override { return variable.value(); }
  void assign(const Variable& variable, const Tensor& value) override { variable.set_value(value); }

 private:
  static std::optional<Tensor> as_view(const OpCall& call) {
    const Tensor& x = call.inputs[0];
    TypeList in;
    for (const Tensor& t : call.inputs) in.push_back(t.type());
    auto view = call.op.view(call.params, {x.shape(), x.strides(), x.offset()}, in);
    if (!view) return std::nullopt;
    return Tensor::view(x.storage(), call.output_types[0], view->strides, view->offset);
  }

  Cache cache_;
};

}  // namespace

EagerRules eager_rules() { return rules_now; }
void set_eager_rules(EagerRules rules) { rules_now = rules; }

Interpreter& eager_interpreter() {
  static auto* eager = new Eager;  // never destroyed: static objects may still call operators at exit
  return *eager;
}

}  // namespace cairn
