// SPDX-License-Identifier: Apache-2.0
// loss → gradients. The tape is an interpreter above another: it passes each call on, and remembers those
// that matter; playing the rules backwards runs on the interpreter beneath. (trail: loss → gradients)
#include "autodiff/backward.h"

#include <cairn/autodiff.h>
#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "ops/context.h"

namespace cairn {

struct TapeEntry {
  const OpDef* op;
  Params params;
  CallSite site;
  std::string path;
  std::vector<uint64_t> input_ids, output_ids;
  TypeList input_types, output_types;
  struct SavedValue {
    bool is_output;
    int index;
    Tensor value;
  };
  std::vector<SavedValue> saved;
};

namespace {

class EntrySaved : public Saved {
 public:
  EntrySaved(const TapeEntry& entry, std::vector<char> needed) : entry_(entry), needed_(std::move(needed)) {}
  Tensor input(int i) const override { return find(false, i); }
  Tensor output(int i) const override { return find(true, i); }
  const TensorType& input_type(int i) const override { return entry_.input_types[size_t(i)]; }
  const TensorType& output_type(int i) const override { return entry_.output_types[size_t(i)]; }
  int input_count() const override { return int(entry_.input_types.size()); }
  bool needs(int i) const override { return needed_[size_t(i)]; }

 private:
  Tensor find(bool is_output, int index) const {
    for (const auto& s : entry_.saved)
      if (s.is_output == is_output && s.index == index) return s.value;
    CAIRN_CHECK(false, fmt::format("the gradient of {} reads {} {}, which it does not declare in `saves`",
                                   entry_.op->name, is_output ? "output" : "input", index));
    return {};
  }
  const TapeEntry& entry_;
  std::vector<char> needed_;
};

}  // namespace

class Tape::Recorder : public Interpreter {
 public:
  explicit Recorder(Interpreter& beneath) : next(beneath) {}

  std::vector<Tensor> apply(const OpCall& call) override {
    bool matters = false, any_float = false;
    for (const Tensor& t : call.inputs) matters = matters || watched.contains(t.id());
    for (const TensorType& t : call.output_types) any_float = any_float || is_float(t.dtype);
    matters = matters && any_float;  // nothing flows through comparisons and indices
    if (matters && !call.op.gradient && call.op.decompose)  // has a gradient part by part (second order)
      return call.op.decompose(call.params, call.inputs);
    std::vector<Tensor> out;
    {
      InterpreterScope scope(next);
      out = next.apply(call);
    }
    if (!matters) return out;
    TapeEntry entry{&call.op, call.params, call.site, module_path(), {}, {}, {}, {}, {}};
    for (const Tensor& t : call.inputs) {
      entry.input_ids.push_back(t.id());
      entry.input_types.push_back(t.type());
    }
    for (const Tensor& t : out) {
      entry.output_ids.push_back(t.id());
      entry.output_types.push_back(t.type());
      if (is_float(t.dtype())) watched.insert(t.id());
    }
    for (const SavedRef& ref : call.op.saves)
      for (int i = 0; i < int(ref.is_output ? out.size() : call.inputs.size()); ++i)
        if (ref.index == i || ref.index == kAllInputs)
          entry.saved.push_back({ref.is_output, i, ref.is_output ? out[size_t(i)] : call.inputs[size_t(i)]});
    entries.push_back(std::move(entry));
    return out;
  }

  Tensor read(const Variable& variable) override {
    InterpreterScope scope(next);
    Tensor t = next.read(variable);
    if (variable.trainable() && is_float(t.dtype())) watched.insert(t.id());
    reads[variable.cell().get()].push_back(t);
    return t;
  }
  void assign(const Variable& variable, const Tensor& value) override {
    InterpreterScope scope(next);
    next.assign(variable, value);
  }
  Interpreter* tracer() override { return next.tracer(); }

  // Gradients of `target` by tensor id.
  std::unordered_map<uint64_t, Tensor> play(const Tensor& target, const std::unordered_set<uint64_t>& sources,
                                            const Tensor& seed) {
    if (!is_float(target.dtype()))
      fail(ErrorCode::dtype_unsupported, "gradient: the target is " + to_string(target.type()) + ", expected a float");
    if (!seed.defined() && target.numel() != 1)
      fail(ErrorCode::shape_mismatch,
           "gradient: the target is " + to_string(target.type()) + ", expected one element, or a seed",
           "Reduce it with mean() or sum(), or give the seed gradient");
    std::unordered_map<uint64_t, Tensor> grad;
    grad[target.id()] = seed.defined() ? seed : Tensor::full(target.type(), 1);
    // Only what lies between a source and the target matters.
    std::unordered_set<uint64_t> reached = sources;
    for (const TapeEntry& e : entries)
      for (uint64_t id : e.input_ids)
        if (reached.contains(id)) {
          reached.insert(e.output_ids.begin(), e.output_ids.end());
          break;
        }
    for (auto it = entries.rbegin(); it != entries.rend(); ++it) {
      const TapeEntry& e = *it;
      std::vector<Tensor> dy;
      bool any = false;
      for (uint64_t id : e.output_ids) {
        const auto found = grad.find(id);
        dy.push_back(found == grad.end() ? Tensor() : found->second);
        any = any || dy.back().defined();
      }
      std::vector<char> needed;
      bool wanted = false;
      for (size_t i = 0; i < e.input_ids.size(); ++i) {
        needed.push_back(reached.contains(e.input_ids[i]) && is_float(e.input_types[i].dtype));
        wanted = wanted || needed.back();
      }
      if (!any || !wanted) continue;
      back(e, dy, needed, grad);
      for (uint64_t id : e.output_ids)
        if (!sources.contains(id)) grad.erase(id);
    }
    return grad;
  }

  Interpreter& next;
  std::vector<TapeEntry> entries;
  std::unordered_set<uint64_t> watched;
  std::unordered_map<const Variable::Cell*, std::vector<Tensor>> reads;

 private:
  void back(const TapeEntry& e, const std::vector<Tensor>& dy, const std::vector<char>& needed,
            std::unordered_map<uint64_t, Tensor>& grad) {
    if (!e.op->gradient)
      fail(ErrorCode::unsupported,
           fmt::format("gradient: {} has none: {}{}", e.op->name, e.op->no_gradient_reason,
                       e.site.file ? " (" + to_string(e.site) + ")" : ""),
           "Wrap the value in stop_gradient, or do not ask for this gradient");
    const Grads g = e.op->gradient(e.params, EntrySaved(e, needed), dy);
    CAIRN_CHECK(g.size() == e.input_ids.size(),
                fmt::format("the gradient of {} gives {} values for {} inputs", e.op->name, g.size(), e.input_ids.size()));
    for (size_t i = 0; i < g.size(); ++i) {
      if (!needed[i] || !g[i].defined()) continue;
      CAIRN_CHECK(g[i].type() == e.input_types[i],
                  fmt::format("the gradient of {} for input {} is {}, expected {}", e.op->name, i,
                              to_string(g[i].type()), to_string(e.input_types[i])));
      Tensor& sum = grad[e.input_ids[i]];
      sum = sum.defined() ? add(sum, g[i]) : g[i];
    }
  }
};

Tape::Tape() : recorder_(std::make_unique<Recorder>(current_interpreter())),
               scope_(std::make_unique<InterpreterScope>(*recorder_)) {}
Tape::~Tape() = default;

void Tape::watch(const Tensor& tensor) { recorder_->watched.insert(tensor.id()); }

std::vector<Tensor> Tape::gradient(const Tensor& target, const std::vector<Tensor>& sources, const Tensor& seed) {
  InterpreterScope scope(recorder_->next);
  std::unordered_set<uint64_t> ids;
  for (const Tensor& s : sources) ids.insert(s.id());
  auto grad = recorder_->play(target, ids, seed);
  std::vector<Tensor> out;
  for (const Tensor& s : sources) {
    Tensor& g = grad[s.id()];
    out.push_back(g.defined() ? g : full(s.shape(), 0, s.dtype()));
  }
  return out;
}

std::vector<Tensor> Tape::gradient(const Tensor& target, const std::vector<Variable>& sources, const Tensor& seed) {
  InterpreterScope scope(recorder_->next);
  std::unordered_set<uint64_t> ids;
  for (const Variable& v : sources)
    for (const Tensor& t : recorder_->reads[v.cell().get()]) ids.insert(t.id());
  auto grad = recorder_->play(target, ids, seed);
  std::vector<Tensor> out;
  for (const Variable& v : sources) {
    Tensor total;  // a variable read more than once may be more than one tensor
    std::unordered_set<uint64_t> seen;
    for (const Tensor& t : recorder_->reads[v.cell().get()])
      if (const auto it = grad.find(t.id()); seen.insert(t.id()).second && it != grad.end() && it->second.defined())
        total = total.defined() ? add(total, it->second) : it->second;
    out.push_back(total.defined() ? total : full(v.type().shape, 0, v.type().dtype));
  }
  return out;
}

}  // namespace cairn
