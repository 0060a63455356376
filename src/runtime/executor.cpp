// SPDX-License-Identifier: Apache-2.0
#include "runtime/executor.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <map>

#include "base/parallel.h"
#include "base/profile.h"
#include "core/memory.h"
#include "core/share.h"
#include "passes/pipeline.h"
#include "runtime/control.h"
#include "runtime/memory_plan.h"

namespace cairn {

BlockedResident::BlockedResident(TensorType type, Layout layout)
    : type_(type), layout_(std::move(layout)), storage_(Storage::allocate(size_t(layout_.bytes(type)))) {}

BlockedResident::BlockedResident(const Tensor& plain, Layout layout) : BlockedResident(plain.type(), std::move(layout)) {
  const Tensor dense = plain.dense();
  const void* from[] = {dense.bytes()};
  void* to[] = {data()};
  cpu_backend().reorder(type_, Layout(), layout_)->run(from, to, nullptr);
}

void BlockedResident::share() { storage_ = share_equal(std::move(storage_)); }

Tensor BlockedResident::to_plain() const {
  Tensor out = Tensor::uninitialized(type_);
  const void* from[] = {data()};
  void* to[] = {out.mutable_bytes()};
  cpu_backend().reorder(type_, layout_, Layout())->run(from, to, nullptr);
  return out;
}

namespace {

enum class Home { arena, variable, constant, input };

struct Buffer {
  Home home = Home::arena;
  size_t bytes = 0;
  int index = -1;    // variable, constant copy or input number
  int base = -1;     // ≥ 0: lies inside another buffer …
  size_t offset = 0; // … this many bytes in
};

// One arena on huge pages, populated once, so that steady state takes no page fault.
class Arena {
 public:
  explicit Arena(size_t bytes) {
    if (bytes == 0) return;
    constexpr size_t kPage = size_t(2) << 20;
    size_ = (bytes + kPage - 1) / kPage * kPage + kPage;
    if (bytes <= memory_limit())  // a mapping succeeds beyond that too, and ends the process when it is filled
      mapped_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!mapped_ || mapped_ == MAP_FAILED) {
      mapped_ = nullptr;
      fail(ErrorCode::out_of_memory, fmt::format("plan: no memory for an arena of {:.1f} MB (limit {:.1f} MB)", double(bytes) / 1e6, double(memory_limit()) / 1e6),
           "Take a smaller batch or picture size");
    }
    data_ = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(mapped_) + kPage - 1) / kPage * kPage);
    ::madvise(data_, size_ - kPage, MADV_HUGEPAGE);
  }
  ~Arena() {
    if (mapped_) ::munmap(mapped_, size_);
  }
  Arena(const Arena&) = delete;
  std::byte* data() const { return data_; }

 private:
  void* mapped_ = nullptr;
  size_t size_ = 0;
  std::byte* data_ = nullptr;
};

class CopyKernel : public PreparedKernel {
 public:
  explicit CopyKernel(size_t bytes) : bytes_(bytes) {}
  void run(const void* const* in, void* const* out, void*) const override {
    if (bytes_) std::memcpy(out[0], in[0], bytes_);
  }

 private:
  size_t bytes_;
};

}  // namespace

class Plan::Impl {
 public:
  Impl(const GraphPtr& graph, const CompileOptions& options) : graph_(*graph), options_(options) {
    const auto start = std::chrono::steady_clock::now();
    threads_ = options.threads > 0 ? options.threads : thread_count();
    passes::run_pipeline(graph_, options);
    lower();
    place();
    stats_.compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  std::vector<Tensor> run(const std::vector<Tensor>& inputs);
  std::string explain() const;
  const PlanStats& stats() const { return stats_; }

 private:
  struct Copy {  // a value in one layout
    Layout layout;
    int buffer;
  };

  // --- lowering ---
  void lower();
  void lower_node(const Node& node);
  bool lower_view(const Node& node);
  int buffer_of(ValueId value, const Layout& layout);
  int new_buffer(Buffer b) {
    buffers_.push_back(b);
    return int(buffers_.size() - 1);
  }
  int base(int b) const {
    while (buffers_[size_t(b)].base >= 0) b = buffers_[size_t(b)].base;
    return b;
  }
  Step& add_step(std::string name, std::unique_ptr<PreparedKernel> kernel, std::vector<int> in, std::vector<int> out) {
    Step step;
    step.name = std::move(name);
    step.kernel = std::move(kernel);
    step.in = std::move(in);
    step.out = std::move(out);
    steps_.push_back(std::move(step));
    return steps_.back();
  }
  void settle(ValueId value, const Layout& layout);
  void lower_assigns();
  // --- placing ---
  void place();
  bool merge_into(int step, int in_buffer, int out_buffer, const std::vector<int>& last_read);
  std::vector<int> last_reads() const;

  Graph graph_;
  CompileOptions options_;
  int threads_ = 1;
  PlanStats stats_;
  std::vector<Step> steps_;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<Copy>> copies_;             // by value
  std::vector<int> variable_of_, constant_of_;        // by value, −1
  std::vector<std::optional<Layout>> variable_layout_;
  std::vector<int> variable_buffer_;
  std::vector<std::unique_ptr<BlockedResident>> constant_data_;
  std::vector<std::pair<int, int>> assign_values_;    // (variable, buffer with its new value)
  std::vector<int> output_buffers_;
  std::vector<char> assigned_;
  std::vector<size_t> place_;                         // arena offset by buffer
  std::unique_ptr<Arena> arena_;
  std::vector<std::byte*> address_;                   // by buffer
  std::vector<const void*> in_pointers_;
  std::vector<void*> out_pointers_;
};

// The buffer that holds `value` in `layout`, adding a reorder when there is none.
int Plan::Impl::buffer_of(ValueId value, const Layout& layout) {
  const TensorType& type = graph_.type(value);
  for (const Copy& c : copies_[size_t(value)])
    if (c.layout == layout) return c.buffer;
  if (const int c = constant_of_[size_t(value)]; c >= 0) {  // constants are repacked now, not at each run
    constant_data_.push_back(std::make_unique<BlockedResident>(graph_.constants[size_t(c)].tensor, layout));
    constant_data_.back()->share();
    const int b = new_buffer({Home::constant, size_t(layout.bytes(type)), int(constant_data_.size() - 1)});
    copies_[size_t(value)].push_back({layout, b});
    return b;
  }
  if (variable_of_[size_t(value)] >= 0 && copies_[size_t(value)].empty()) {
    settle(value, layout);
    return copies_[size_t(value)][0].buffer;
  }
  CAIRN_CHECK(!copies_[size_t(value)].empty(), "a value has no buffer");
  const Copy from = copies_[size_t(value)][0];
  const int b = new_buffer({Home::arena, size_t(layout.bytes(type))});
  Step& step = add_step(fmt::format("reorder {} -> {}", from.layout.tag(type.shape.rank()), layout.tag(type.shape.rank())),
                        cpu_backend().reorder(type, from.layout, layout), {from.buffer}, {b});
  step.bytes = double(from.layout.bytes(type) + layout.bytes(type));
  ++stats_.reorders;
  copies_[size_t(value)].push_back({layout, b});
  return b;
}

void Plan::Impl::settle(ValueId value, const Layout& layout) {
  const int v = variable_of_[size_t(value)];
  variable_layout_[size_t(v)] = layout;
  variable_buffer_[size_t(v)] = new_buffer({Home::variable, size_t(layout.bytes(graph_.type(value))), v});
  copies_[size_t(value)].push_back({layout, variable_buffer_[size_t(v)]});
}

// Reshapes, and other operators that only rename the elements of a dense value, cost nothing.
bool Plan::Impl::lower_view(const Node& node) {
  if (!node.op->view) return false;
  const TypeList in = graph_.types(node.inputs);
  const auto view = node.op->view(node.params, {in[0].shape, dense_strides(in[0].shape), 0}, in);
  if (!view) return false;
  const TensorType& out = graph_.type(node.outputs[0]);
  const Shape dense = dense_strides(out.shape);
  for (int i = 0; i < out.shape.rank(); ++i)
    if (out.shape[i] != 1 && view->strides[i] != dense[i]) return false;
  const size_t offset = size_t(view->offset) * size_of(out.dtype);
  if (offset % 64 != 0) return false;  // kernels expect aligned operands
  const int from = buffer_of(node.inputs[0], Layout());
  Buffer b;
  b.bytes = size_t(out.bytes());
  b.base = from;
  b.offset = offset;
  copies_[size_t(node.outputs[0])].push_back({Layout(), new_buffer(b)});
  return true;
}

void Plan::Impl::lower_node(const Node& node) {
  // Renaming the elements of a blocked value would cost a reorder first; a kernel may do better.
  const auto blocked = [&](ValueId v) { return !copies_[size_t(v)].empty() && !copies_[size_t(v)][0].layout.is_dense(); };
  const bool view_last = !node.inputs.empty() && blocked(node.inputs[0]);
  if (!view_last && lower_view(node)) return;
  const TypeList in = graph_.types(node.inputs), out = graph_.types(node.outputs);
  std::vector<std::optional<Layout>> layouts;
  for (ValueId v : node.inputs) {
    const auto& copies = copies_[size_t(v)];
    layouts.push_back(copies.empty() ? std::nullopt : std::optional(copies[0].layout));
  }
  std::vector<Tensor> dense;
  std::vector<const void*> constants;
  for (ValueId v : node.inputs) {
    const int c = constant_of_[size_t(v)];
    if (c >= 0) dense.push_back(graph_.constants[size_t(c)].tensor.dense());
    constants.push_back(c >= 0 ? dense.back().bytes() : nullptr);
  }
  const KernelRequest request{*node.op, node.params, in,    out,      layouts, threads_, options_.deterministic,
                              options_.exact, constants};
  Step step;
  KernelChoice choice = is_control(*node.op) ? KernelChoice{&reference_kernel, std::get<KernelOffer>(reference_kernel.offer(request))}
                                             : choose_kernel(cpu_backend(), request, &step.refusals);
  if (view_last && choice.offer.in[0].is_dense() && lower_view(node)) return;
  step.name = fmt::format("{} {}", node.op->name, choice.kernel->name);
  step.path = node.path;
  step.site = node.site;
  for (size_t i = 0; i < in.size(); ++i) step.in.push_back(buffer_of(node.inputs[i], choice.offer.in[i]));
  for (size_t i = 0; i < out.size(); ++i) {
    step.out.push_back(new_buffer({Home::arena, size_t(choice.offer.out[i].bytes(out[i]))}));
    copies_[size_t(node.outputs[i])].push_back({choice.offer.out[i], step.out.back()});
  }
  if (choice.offer.workspace_bytes) step.workspace = new_buffer({Home::arena, choice.offer.workspace_bytes});
  step.in_place = choice.offer.in_place;
  step.kernel = is_control(*node.op) ? control_kernel(node, in, out, options_)
                                     : choice.kernel->prepare(request, choice.offer);
  const Cost cost = node.op->cost(node.params, in, out);
  step.flops = cost.flops;
  step.bytes = cost.bytes;
  steps_.push_back(std::move(step));
  ++stats_.kernels;
}

void Plan::Impl::lower() {
  copies_.resize(graph_.values.size());
  variable_of_.assign(graph_.values.size(), -1);
  constant_of_.assign(graph_.values.size(), -1);
  variable_layout_.resize(graph_.variables.size());
  variable_buffer_.assign(graph_.variables.size(), -1);
  assigned_.assign(graph_.variables.size(), 0);
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const ValueId v = graph_.inputs[i];
    copies_[size_t(v)].push_back({Layout(), new_buffer({Home::input, size_t(graph_.type(v).bytes()), int(i)})});
  }
  for (size_t i = 0; i < graph_.variables.size(); ++i) {
    CAIRN_CHECK(graph_.variables[i].variable.defined(), "a plan needs bound variables");
    variable_of_[size_t(graph_.variables[i].value)] = int(i);
  }
  for (size_t i = 0; i < graph_.constants.size(); ++i) constant_of_[size_t(graph_.constants[i].value)] = int(i);
  for (const auto& a : graph_.assigns) assigned_[size_t(a.variable)] = 1;
  for (const Node& node : graph_.nodes) {
    try {
      lower_node(node);
    } catch (Error& e) {
      if (!node.path.empty()) e.add_frame("module " + node.path);
      if (node.site.file) e.add_frame(to_string(node.site));
      throw;
    }
  }
  for (ValueId v : graph_.outputs) output_buffers_.push_back(buffer_of(v, Layout()));
  for (auto& c : graph_.constants) c.tensor = Tensor();  // the kernels have theirs
  for (size_t i = 0; i < graph_.variables.size(); ++i)
    if (variable_buffer_[i] < 0) settle(graph_.variables[i].value, Layout());
  for (const auto& a : graph_.assigns)
    assign_values_.emplace_back(a.variable, buffer_of(a.value, *variable_layout_[size_t(a.variable)]));
}

std::vector<int> Plan::Impl::last_reads() const {
  std::vector<int> last(buffers_.size(), -1);
  for (size_t s = 0; s < steps_.size(); ++s)
    for (int b : steps_[s].in) last[size_t(base(b))] = int(s);
  for (int b : output_buffers_) last[size_t(base(b))] = int(steps_.size());
  return last;
}

// Lets `out_buffer` of a step lie where one of its inputs lies, if nobody reads that input later.
bool Plan::Impl::merge_into(int s, int in_buffer, int out_buffer, const std::vector<int>& last_read) {
  Buffer& out = buffers_[size_t(out_buffer)];
  const int target = base(in_buffer);
  if (out.base >= 0 || out.home != Home::arena || buffers_[size_t(in_buffer)].offset != 0) return false;
  if (buffers_[size_t(target)].bytes < out.bytes || last_read[size_t(target)] > s) return false;
  for (int b : steps_[size_t(s)].out)
    if (b != out_buffer && base(b) == target) return false;
  int readers = 0;
  for (int b : steps_[size_t(s)].in) readers += base(b) == target;
  if (readers != 1) return false;
  out.base = target;
  out.offset = 0;
  return true;
}

void Plan::Impl::lower_assigns() {
  std::vector<int> producer(buffers_.size(), -1);
  for (size_t s = 0; s < steps_.size(); ++s)
    for (int b : steps_[s].out) producer[size_t(b)] = int(s);
  std::vector<std::pair<int, int>> copies;  // (from, to): values that could not be made in place
  auto last = last_reads();
  for (const auto& [variable, value] : assign_values_) {
    const int target = variable_buffer_[size_t(variable)];
    const int s = producer[size_t(value)];
    bool merged = false;
    if (s >= 0)
      for (const auto& [i, o] : steps_[size_t(s)].in_place) {
        if (steps_[size_t(s)].out[size_t(o)] != value || steps_[size_t(s)].in[size_t(i)] != target) continue;
        // The old value must have no reader after this step; readers of the new one do not matter.
        merged = merge_into(s, target, value, last);
        if (merged) break;
      }
    if (!merged) copies.emplace_back(value, target);
  }
  // A value that is itself a variable may be overwritten by an earlier copy: go through a temporary.
  for (auto& [from, to] : copies)
    if (buffers_[size_t(base(from))].home == Home::variable) {
      const size_t bytes = buffers_[size_t(to)].bytes;
      const int temporary = new_buffer({Home::arena, bytes});
      add_step("copy", std::make_unique<CopyKernel>(bytes), {from}, {temporary});
      from = temporary;
    }
  // So may an output that is a variable's old value.
  for (int& b : output_buffers_)
    if (buffers_[size_t(base(b))].home == Home::variable) {
      const size_t bytes = buffers_[size_t(b)].bytes;
      const int temporary = new_buffer({Home::arena, bytes});
      add_step("copy", std::make_unique<CopyKernel>(bytes), {b}, {temporary});
      b = temporary;
    }
  for (const auto& [from, to] : copies) {
    const size_t bytes = buffers_[size_t(to)].bytes;
    add_step("copy", std::make_unique<CopyKernel>(bytes), {from}, {to});
  }
}

void Plan::Impl::place() {
  lower_assigns();
  auto last = last_reads();
  for (size_t s = 0; s < steps_.size(); ++s)
    for (const auto& [i, o] : steps_[s].in_place) {
      const int in = steps_[s].in[size_t(i)], out = steps_[s].out[size_t(o)];
      const int target = base(in);
      if (buffers_[size_t(target)].home != Home::arena || !merge_into(int(s), in, out, last)) continue;
      last[size_t(target)] = std::max(last[size_t(target)], last[size_t(out)]);
    }
  // Lifetimes of what lives in the arena.
  const int end = int(steps_.size());
  std::vector<Lifetime> lives(buffers_.size(), {0, end, -1});
  const auto touch = [&](int b, int s) {
    Lifetime& life = lives[size_t(base(b))];
    life.first = std::min(life.first, s);
    life.last = std::max(life.last, s);
  };
  for (int s = 0; s < end; ++s) {
    for (int b : steps_[size_t(s)].in) touch(b, s);
    for (int b : steps_[size_t(s)].out) touch(b, s);
    if (steps_[size_t(s)].workspace >= 0) touch(steps_[size_t(s)].workspace, s);
  }
  for (int b : output_buffers_) touch(b, end);
  for (size_t b = 0; b < buffers_.size(); ++b)
    if (buffers_[b].base < 0 && buffers_[b].home == Home::arena && lives[b].last >= 0) lives[b].bytes = buffers_[b].bytes;
    else if (lives[b].last < 0) lives[b] = {0, 0, 0};
  MemoryPlan plan = plan_memory(lives);
  place_ = std::move(plan.offsets);
  stats_.arena_bytes = plan.arena_bytes;
  for (int b : variable_buffer_) stats_.variable_bytes += buffers_[size_t(b)].bytes;
  arena_ = std::make_unique<Arena>(plan.arena_bytes);
  address_.resize(buffers_.size());
}

std::vector<Tensor> Plan::Impl::run(const std::vector<Tensor>& inputs) {
  if (inputs.size() != graph_.inputs.size())
    fail(ErrorCode::invalid_argument,
         fmt::format("plan {}: got {} inputs, expected {}", graph_.name, inputs.size(), graph_.inputs.size()));
  std::vector<Tensor> in;  // dense and aligned, as kernels expect
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId v = graph_.inputs[i];
    if (inputs[i].type() != graph_.type(v))
      fail(ErrorCode::shape_mismatch,
           fmt::format("plan {}: input {}: got {}, expected {}", graph_.name, graph_.values[size_t(v)].name,
                       to_string(inputs[i].type()), to_string(graph_.type(v))));
    Tensor t = inputs[i].dense();
    if (reinterpret_cast<uintptr_t>(t.bytes()) % 64 != 0)
      t = Tensor::from_bytes(t.type(), t.bytes(), size_t(t.type().bytes()));
    in.push_back(std::move(t));
  }
  std::vector<std::byte*> variable_data;
  std::vector<Tensor> plain;  // keeps values alive that are read where they lie
  for (size_t i = 0; i < graph_.variables.size(); ++i) {
    const Variable& variable = graph_.variables[i].variable;
    auto& cell = *variable.cell();
    const Layout& layout = *variable_layout_[i];
    auto* resident = dynamic_cast<BlockedResident*>(cell.resident.get());
    if (!resident || resident->layout() != layout) {
      if (layout.is_dense() && !assigned_[i]) {
        plain.push_back(variable.value().dense());
        variable_data.push_back(const_cast<std::byte*>(plain.back().bytes()));
        continue;
      }
      auto fresh = std::make_shared<BlockedResident>(variable.value(), layout);
      resident = fresh.get();
      cell.resident = std::move(fresh);
      cell.value = {};
    }
    variable_data.push_back(resident->data());
  }
  for (size_t b = 0; b < buffers_.size(); ++b) {
    int root = int(b);
    size_t offset = 0;
    while (buffers_[size_t(root)].base >= 0) offset += buffers_[size_t(root)].offset, root = buffers_[size_t(root)].base;
    const Buffer& home = buffers_[size_t(root)];
    std::byte* at = nullptr;
    switch (home.home) {
      case Home::arena: at = arena_->data() + place_[size_t(root)]; break;
      case Home::variable: at = variable_data[size_t(home.index)]; break;
      case Home::constant: at = constant_data_[size_t(home.index)]->data(); break;
      case Home::input: at = const_cast<std::byte*>(in[size_t(home.index)].bytes()); break;
    }
    address_[b] = at ? at + offset : nullptr;
  }
  for (size_t i = 0; i < graph_.variables.size(); ++i)
    if (assigned_[i]) {
      auto& cell = *graph_.variables[i].variable.cell();
      cell.value = {};
      ++cell.version;
    }
  const int before = thread_count();
  if (before != threads_) set_thread_count(threads_);
  for (const Step& step : steps_) {
    in_pointers_.clear();
    out_pointers_.clear();
    for (int b : step.in) in_pointers_.push_back(address_[size_t(b)]);
    for (int b : step.out) out_pointers_.push_back(address_[size_t(b)]);
    void* workspace = step.workspace >= 0 ? address_[size_t(step.workspace)] : nullptr;
    try {
      ProfileSpan span(step.name, step.path, step.flops, step.bytes);
      step.kernel->run(in_pointers_.data(), out_pointers_.data(), workspace);
    } catch (Error& e) {
      if (!step.path.empty()) e.add_frame("module " + step.path);
      if (step.site.file) e.add_frame(to_string(step.site));
      if (before != threads_) set_thread_count(before);
      throw;
    }
  }
  if (before != threads_) set_thread_count(before);
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < output_buffers_.size(); ++i) {
    const TensorType& type = graph_.type(graph_.outputs[i]);
    outputs.push_back(Tensor::from_bytes(type, address_[size_t(output_buffers_[i])], size_t(type.bytes())));
  }
  return outputs;
}

std::string Plan::Impl::explain() const {
  std::string text = fmt::format("{} kernels, {} reorders, arena {:.1f} MB, variables {:.1f} MB\n", stats_.kernels,
                                 stats_.reorders, double(stats_.arena_bytes) / 1e6, double(stats_.variable_bytes) / 1e6);
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    text += fmt::format("{:4} {:<44} {:8.2f} MFLOP {:8.2f} MB  {}\n", s, step.name, step.flops / 1e6, step.bytes / 1e6,
                        step.path);
    for (const std::string& r : step.refusals) text += "       refused by " + r + "\n";
  }
  return text;
}

Plan::Plan(const GraphPtr& graph, const CompileOptions& options) : impl_(std::make_unique<Impl>(graph, options)) {}
Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;
std::vector<Tensor> Plan::run(const std::vector<Tensor>& inputs) { return impl_->run(inputs); }
const PlanStats& Plan::stats() const { return impl_->stats(); }
std::string Plan::explain() const { return impl_->explain(); }

struct Compiled::Impl {
  struct Entry {
    TypeList types;
    Plan plan;
  };
  Function function;
  CompileOptions options;
  size_t capacity;
  std::list<Entry> plans;  // most recently used first
};

Compiled::Compiled(Function function, CompileOptions options, size_t capacity)
    : impl_(std::make_unique<Impl>(Impl{std::move(function), std::move(options), std::max<size_t>(1, capacity), {}})) {}
Compiled::~Compiled() = default;

std::vector<Tensor> Compiled::operator()(const std::vector<Tensor>& inputs) {
  TypeList types;
  for (const Tensor& t : inputs) types.push_back(t.type());
  auto& plans = impl_->plans;
  auto it = std::ranges::find(plans, types, &Impl::Entry::types);
  if (it == plans.end()) {
    while (plans.size() >= impl_->capacity) plans.pop_back();
    plans.push_front({types, Plan(trace(impl_->function, types), impl_->options)});
  } else if (it != plans.begin()) {
    plans.splice(plans.begin(), plans, it);
  }
  return plans.front().plan.run(inputs);
}

PlanStats Compiled::stats() const { return impl_->plans.empty() ? PlanStats{} : impl_->plans.front().plan.stats(); }

std::string Compiled::explain() const { return impl_->plans.empty() ? "" : impl_->plans.front().plan.explain(); }

}  // namespace cairn
