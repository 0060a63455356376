// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/elementwise/vm.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "backends/cpu/shape/strided_copy.h"
#include "base/parallel.h"

namespace cairn::cpu {
namespace {

constexpr int kMaxSlots = 128;
constexpr int kCacheBytes = 16 << 10;  // of the L1 cache, for scratch
constexpr int kMaxScratch = 32 << 10;
constexpr int kLongestStrip = 1024;
constexpr int64_t kThreadElements = 32 << 10;  // of one cheap operation: less is not worth a thread
constexpr int kAlign = 64;

bool is_costly(StripOp op) {
  return op == StripOp::pow || op == StripOp::div || op == StripOp::elu ||
         (op >= StripOp::exp && op <= StripOp::erf) ||
         (op >= StripOp::sigmoid && op <= StripOp::silu_grad);
}

template <class T>
void splat(std::byte* to, const std::byte* from, int64_t n) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  std::fill_n(reinterpret_cast<T*>(to), n, value);
}
void splat(std::byte* to, const std::byte* from, int64_t n, int size) {
  if (size == 4)
    splat<uint32_t>(to, from, n);
  else if (size == 1)
    splat<uint8_t>(to, from, n);
  else if (size == 8)
    splat<uint64_t>(to, from, n);
  else
    splat<uint16_t>(to, from, n);
}

// `n` elements of the endless repetition of `period` elements, from element `phase` on.
void repeat(std::byte* to, const std::byte* from, int64_t period, int64_t phase, int64_t n,
            int size) {
  int64_t done = std::min(n, period - phase);
  std::memcpy(to, from + phase * size, size_t(done * size));
  if (const int64_t more = std::min(n - done, phase); more > 0) {
    std::memcpy(to + done * size, from, size_t(more * size));
    done += more;
  }
  for (; done < n; done += std::min(done, n - done))  // `done` is a whole number of periods
    std::memcpy(to + done * size, to, size_t(std::min(done, n - done) * size));
}

// Where a dense operand of `shape` is read while memory of `full` in `layout` is walked: innermost
// axis first.
std::vector<std::pair<int64_t, int64_t>> broadcast_axes(const Shape& shape, const Shape& full,
                                                        const Layout& layout) {
  const Shape dense = dense_strides(shape);
  const int extra = full.rank() - shape.rank();
  std::vector<std::pair<int64_t, int64_t>> out;
  const auto memory = memory_axes(full, layout);
  for (auto it = memory.rbegin(); it != memory.rend(); ++it) {
    if (it->length == 1) continue;
    const int axis = it->logical - extra;
    const int64_t stride = axis < 0 || shape[axis] == 1 ? 0 : dense[axis] * it->step;
    if (!out.empty() && stride == out.back().second * out.back().first)
      out.back().first *= it->length;
    else
      out.emplace_back(it->length, stride);
  }
  return out;
}

}  // namespace

struct Vm::Frame {
  std::array<std::byte*, kMaxSlots> base;
  std::array<int64_t, kMaxSlots> step;  // bytes an element of the tensor: 0 for scratch
  const std::byte* workspace;
  const void* const* in;
  // What a broadcast's slot holds: many strips in a row read the same.
  struct Filled {
    int64_t source = -1, phase = 0, count = 0;
  };
  mutable std::array<Filled, kMaxSlots> filled;

  void fill(const Broadcast& b, int64_t at, int64_t count, Filled& filled) const;
  void execute(const Vm& vm, int64_t at, int64_t n) const {
    for (const Instruction& i : vm.code_) {
      StripArgs args;
      args.out = base[size_t(i.out)] + at * step[size_t(i.out)];
      for (int k = 0; k < i.operands; ++k)
        args.in[k] = base[size_t(i.in[size_t(k)])] + at * step[size_t(i.in[size_t(k)])];
      args.p[0] = i.p[0];
      args.p[1] = i.p[1];
      i.fn(args, n);
    }
  }
};

// Lays elements at … at+count−1 of a broadcast operand out in its slot.
void Vm::Frame::fill(const Broadcast& b, int64_t at, int64_t count, Filled& held) const {
  const std::byte* src =
      b.input < 0 ? workspace + b.at : static_cast<const std::byte*>(in[b.input]);
  std::byte* to = base[size_t(b.slot)];
  const int size = b.size;
  const auto axes = std::span(b.axes);
  std::array<int64_t, 2 * kMaxRank> index{};
  int64_t source = 0, rest = at;  // one value for all (no axes): index[0] stays 0
  for (size_t k = 0; k < axes.size(); ++k) {
    index[k] = rest % axes[k].first;
    rest /= axes[k].first;
    source += index[k] * axes[k].second;
  }
  // The first axis is one value, or the first two repeat a short row: the same for `region`
  // elements.
  const int64_t length = axes.empty() ? at + count : axes[0].first,
                stride = axes.empty() ? 0 : axes[0].second;
  const bool repeats = stride == 1 && axes.size() > 1 && axes[1].second == 0;
  const int64_t phase = repeats ? index[0] : 0;
  const int64_t left = repeats       ? (axes[1].first - index[1]) * length - phase
                       : stride == 0 ? length - index[0]
                                     : 0;
  if (left >= count) {
    source -= phase;
    if (held.source == source && held.phase == phase && held.count >= count) return;
    held = {source, phase, count};
    if (stride == 0)
      splat(to, src + source * size, count, size);
    else
      repeat(to, src + source * size, length, phase, count, size);
    return;
  }
  held.source = -1;
  while (count > 0) {
    int64_t piece;
    if (repeats) {
      piece = std::min(count, (axes[1].first - index[1]) * length - index[0]);
      repeat(to, src + (source - index[0]) * size, length, index[0], piece, size);
      source -= index[0];
    } else {
      piece = std::min(count, length - index[0]);
      if (stride == 0)
        splat(to, src + source * size, piece, size);
      else if (stride == 1)
        std::memcpy(to, src + source * size, size_t(piece * size));
      else
        for (int64_t k = 0; k < piece; ++k)
          std::memcpy(to + k * size, src + (source + k * stride) * size, size_t(size));
      source -= index[0] * stride;
    }
    to += piece * size;
    count -= piece;
    index[0] = 0;
    if (repeats) index[1] = 0;
    for (size_t k = repeats ? 2 : 1; k < axes.size(); ++k) {
      source += axes[k].second;
      if (++index[k] < axes[k].first) break;
      source -= axes[k].second * axes[k].first;
      index[k] = 0;
    }
  }
}

// ---- running ----

void Vm::run(const void* const* in, void* const* out, void* workspace) const {
  if (count_ == 0) return;
  auto* scratch = static_cast<std::byte*>(workspace);
  for (const Prologue& p : prologue_) {
    std::vector<const void*> operands;
    for (auto& [input, at] : p.in) operands.push_back(input < 0 ? scratch + at : in[input]);
    void* result[] = {scratch + p.at};
    p.vm->run(operands.data(), result, nullptr);
  }
  parallel_for((count_ + strip_ - 1) / strip_, grain_, [&](int64_t begin, int64_t end) {
    run_strips(in, out, scratch, begin * strip_, std::min(count_, end * strip_));
  });
}

void Vm::run_strips(const void* const* in, void* const* out, const std::byte* workspace,
                    int64_t begin, int64_t end) const {
  alignas(kAlign) std::byte scratch[kMaxScratch];
  Frame frame;
  frame.in = in;
  frame.workspace = workspace;
  for (size_t k = 0; k < slots_.size(); ++k) {
    const Slot& s = slots_[k];
    frame.step[k] = s.kind == Slot::scratch ? 0 : s.size;
    auto* memory = s.kind == Slot::scratch  ? scratch + int64_t(s.index) * strip_
                   : s.kind == Slot::result ? static_cast<std::byte*>(out[s.index])
                   : s.index < 0            ? workspace + s.at
                                            : static_cast<const std::byte*>(in[s.index]);
    frame.base[k] = const_cast<std::byte*>(memory);  // only results and scratch are written
  }
  for (int64_t at = begin; at < end; at += strip_) {
    const int64_t n = std::min<int64_t>(strip_, end - at), whole = n / kStripUnit * kStripUnit;
    for (size_t k = 0; k < broadcasts_.size(); ++k)
      frame.fill(broadcasts_[k], at, n, frame.filled[k]);
    if (whole) frame.execute(*this, at, whole);
    if (whole < n) run_rest(frame, at + whole, n - whole);
  }
}

// The last elements, fewer than a unit: operands are copied to where a whole unit can be read and
// written.
void Vm::run_rest(const Frame& frame, int64_t at, int64_t count) const {
  alignas(kAlign) std::byte units[kMaxSlots][kStripUnit * 8];
  Frame rest = frame;
  for (size_t k = 0; k < slots_.size(); ++k) {
    const Slot& s = slots_[k];
    if (s.kind == Slot::scratch || s.kind == Slot::scalar) continue;
    if (s.kind == Slot::input) {
      std::memset(units[k], 0, size_t(kStripUnit * s.size));
      std::memcpy(units[k], frame.base[k] + at * s.size, size_t(count * s.size));
    }
    rest.base[k] = units[k];
    rest.step[k] = 0;
  }
  for (size_t k = 0; k < broadcasts_.size(); ++k) {
    rest.filled[k].source = -1;
    std::memset(rest.base[size_t(broadcasts_[k].slot)], 0,
                size_t(kStripUnit * broadcasts_[k].size));
    rest.fill(broadcasts_[k], at, count, rest.filled[k]);
  }
  rest.execute(*this, 0, kStripUnit);
  for (size_t k = 0; k < slots_.size(); ++k)
    if (slots_[k].kind == Slot::result)
      std::memcpy(frame.base[k] + at * slots_[k].size, units[k], size_t(count * slots_[k].size));
}

// ---- compiling ----

class Vm::Compiler {
 public:
  Compiler(const ops::FusedProgram& program, Types in, const Layout& layout, KnownCondition known)
      : program_(program),
        in_(in),
        layout_(layout),
        known_(known),
        full_(type(program.results[0]).shape) {}

  // Empty when done, else the reason why not.
  std::string compile(Vm& vm) {
    for (int r : program_.results)
      if (type(r).shape != full_) return "results of different shapes";
    find_live();
    for (size_t c = 0; c < program_.calls.size(); ++c)
      if (live_[c])
        if (std::string why =
                type(int(c)).shape == full_ ? translate(int(c)) : precompute(vm, int(c));
            !why.empty())
          return why;
    pick_up_results();
    allocate(vm);
    if (vm.slots_.size() > kMaxSlots) return fmt::format("more than {} values", kMaxSlots);
    const int unit = vm.scratch_bytes_;
    if (unit * kStripUnit > kMaxScratch) return "too many values alive at once";
    const int64_t fitting = unit ? kCacheBytes / unit : kLongestStrip;
    vm.strip_ =
        int(std::clamp<int64_t>(fitting / kStripUnit * kStripUnit, kStripUnit, kLongestStrip));
    vm.grain_ = int(std::max<int64_t>(1, kThreadElements * 4 / (3 + weight_) / vm.strip_));
    vm.count_ = full_.numel();
    vm.workspace_bytes_ = workspace_;
    return {};
  }

 private:
  // Before slots are known: operands as the program names them.
  struct Step {
    StripOp op;
    DType in, out;  // the function's types
    std::vector<int> args;
    int result;  // a call; ≥ calls: result number result − calls
    std::array<double, 2> p{};
  };

  const TensorType& type(int arg) const {
    return arg < 0 ? in_[size_t(-1 - arg)] : program_.calls[size_t(arg)].type;
  }
  StripOp op(int call) const { return strip_op(program_.calls[size_t(call)].op->name); }
  bool is_whole(int call) const { return call >= 0 && type(call).shape == full_; }

  // Follows operators that only pass a value on.
  int origin(int arg) const {
    while (arg >= 0) {
      const auto& c = program_.calls[size_t(arg)];
      const StripOp o = op(arg);
      if (o == StripOp::copy || (o == StripOp::cast && type(c.args[0]).dtype == c.type.dtype))
        arg = c.args[0];
      else if (o == StripOp::select && known_.input >= 0 && c.args[0] == -1 - known_.input)
        arg = c.args[known_.value ? 1 : 2];
      else
        break;
    }
    return arg;
  }

  void find_live() {
    live_.assign(program_.calls.size(), false);
    uses_.assign(program_.calls.size(), 0);
    std::vector<int> stack;
    const auto use = [&](int arg) {
      if (arg = origin(arg); arg < 0) return;
      ++uses_[size_t(arg)];
      if (!live_[size_t(arg)]) live_[size_t(arg)] = true, stack.push_back(arg);
    };
    for (int r : program_.results) use(r);
    while (!stack.empty()) {
      const int call = stack.back();
      stack.pop_back();
      for (int a : program_.calls[size_t(call)].args) use(a);
    }
  }

  // A call over a smaller shape runs before all else.
  std::string precompute(Vm& vm, int call) {
    const auto& c = program_.calls[size_t(call)];
    ops::FusedProgram single{{c}, {0}};
    TypeList types;
    Prologue p;
    for (size_t k = 0; k < c.args.size(); ++k) {
      const int arg = origin(c.args[k]);
      single.calls[0].args[k] = -1 - int(k);
      types.push_back(type(arg));
      p.in.emplace_back(arg < 0 ? -1 - arg : -1, arg < 0 ? 0 : computed_[arg]);
    }
    auto compiled = Vm::compile(single, types, Layout());
    if (auto* refusal = std::get_if<Refusal>(&compiled)) return refusal->reason;
    p.vm = std::make_shared<const Vm>(std::get<Vm>(std::move(compiled)));
    p.at = computed_[call] = workspace_;
    workspace_ += size_t((c.type.bytes() + kAlign - 1) / kAlign * kAlign);
    vm.prologue_.push_back(std::move(p));
    return {};
  }

  std::string translate(int call) {
    const auto& c = program_.calls[size_t(call)];
    Step step{op(call),     c.args.empty() ? c.type.dtype : type(c.args[0]).dtype,
              c.type.dtype, {},
              call,         {}};
    for (int a : c.args) step.args.push_back(origin(a));
    for (const auto& [name, value] : c.params.values())
      if (auto* d = std::get_if<double>(&value)) step.p[name == "high"] = *d;
    join(step);
    if (!strip_code(step.op, step.in, step.out, 0).fn)
      return fmt::format("no vector form of {} from {} to {}", c.op->name, name(step.in),
                         name(step.out));
    weight_ += is_costly(step.op) ? 8 : 1;
    steps_.push_back(std::move(step));
    return {};
  }

  // Takes a product into the sum that alone uses it, and a comparison into its select.
  void join(Step& step) {
    const auto joinable = [&](int arg, auto&& wanted) {
      return is_whole(arg) && uses_[size_t(arg)] == 1 && wanted(op(arg)) &&
             is_float(type(arg).dtype);
    };
    const auto take = [&](int arg) {
      const auto at = std::ranges::find(steps_, arg, &Step::result);
      Step taken = std::move(*at);
      steps_.erase(at);
      return taken.args;
    };
    if (step.op == StripOp::add || step.op == StripOp::sub) {
      const auto product = [](StripOp o) { return o == StripOp::mul; };
      for (const int side : {1, 0})
        if (joinable(step.args[size_t(side)], product)) {
          const int other = step.args[size_t(1 - side)];
          step.args = take(step.args[size_t(side)]);
          step.args.push_back(other);
          step.op = step.op == StripOp::add ? (side ? StripOp::add_mul : StripOp::mul_add)
                                            : (side ? StripOp::sub_mul : StripOp::mul_sub);
          return;
        }
    } else if (step.op == StripOp::select && is_float(step.out)) {
      const int condition = step.args[0];
      if (!is_whole(condition) || uses_[size_t(condition)] != 1) return;
      const StripOp compare = op(condition);
      if (compare < StripOp::equal || compare > StripOp::greater_equal) return;
      if (type(program_.calls[size_t(condition)].args[0]).dtype != step.out) return;
      std::vector<int> args = take(condition);
      args.insert(args.end(), {step.args[1], step.args[2]});
      step.args = std::move(args);
      step.in = step.out;
      step.op = StripOp(int(StripOp::select_equal) + int(compare) - int(StripOp::equal));
    }
  }

  // A result that is an input, a smaller call or an earlier result is copied at the end.
  void pick_up_results() {
    const int calls = int(program_.calls.size());
    result_of_.assign(program_.calls.size(), -1);
    for (size_t r = 0; r < program_.results.size(); ++r) {
      const int from = origin(program_.results[r]);
      if (from >= 0 && result_of_[size_t(from)] < 0)
        result_of_[size_t(from)] = int(r);
      else
        steps_.push_back(
            {StripOp::copy, type(from).dtype, type(from).dtype, {from}, calls + int(r), {}});
    }
  }

  bool in_memory_order(const TensorType& t) const {
    if (t.shape == full_) return true;
    Shape padded = t.shape;
    while (layout_.is_dense() && padded.rank() < full_.rank()) padded.insert(0, 1);
    return padded == full_;
  }

  int add_slot(Vm& vm, Slot::Kind kind, int index, int size) {
    vm.slots_.push_back({kind, index, size, 0});
    return int(vm.slots_.size()) - 1;
  }
  int add_scratch(Vm& vm, int size) {
    const int at = vm.scratch_bytes_;
    vm.scratch_bytes_ += size;
    return add_slot(vm, Slot::scratch, at, size);
  }

  // One element for the whole tensor, known before the first strip?
  bool is_scalar(int arg) const {
    return (arg < 0 || computed_.contains(arg)) && type(arg).numel() == 1 && full_.numel() != 1;
  }
  int scalar_slot(Vm& vm, int arg) {
    const auto it = scalar_.find(arg);
    if (it != scalar_.end()) return it->second;
    const int slot = add_slot(vm, Slot::scalar, arg < 0 ? -1 - arg : -1, 0);
    if (arg >= 0) vm.slots_.back().at = computed_[arg];
    return scalar_[arg] = slot;
  }

  // Where an operand that no step computes is read.
  int operand_slot(Vm& vm, int arg) {
    if (const auto it = slot_.find(arg); it != slot_.end()) return it->second;
    const TensorType& t = type(arg);
    const int size = int(size_of(t.dtype));
    int slot;
    if (arg < 0 && in_memory_order(t)) {
      slot = add_slot(vm, Slot::input, -1 - arg, size);
    } else {
      slot = add_scratch(vm, size);
      vm.broadcasts_.push_back({slot, size, arg < 0 ? -1 - arg : -1, arg < 0 ? 0 : computed_[arg],
                                broadcast_axes(t.shape, full_, layout_)});
    }
    return slot_[arg] = slot;
  }

  void allocate(Vm& vm) {
    const int calls = int(program_.calls.size());
    std::unordered_map<int, size_t> last_use;
    for (size_t s = 0; s < steps_.size(); ++s)
      for (int a : steps_[s].args) last_use[a] = s;
    std::vector<int> free;  // scratch slots
    std::vector<size_t> written(program_.results.size());
    for (size_t s = 0; s < steps_.size(); ++s) {
      const Step& step = steps_[s];
      int scalars = 0;
      for (size_t k = 0; k < step.args.size(); ++k) scalars |= is_scalar(step.args[k]) << k;
      const StripCode code = strip_code(step.op, step.in, step.out, scalars);
      Instruction i{code.fn, 0, int(step.args.size()), {}, step.p};
      for (size_t k = 0; k < step.args.size(); ++k)
        i.in[k] =
            code.scalars >> k & 1 ? scalar_slot(vm, step.args[k]) : operand_slot(vm, step.args[k]);
      for (size_t k = 0; k < step.args.size(); ++k) {
        const int a = step.args[k];  // the strip of a value that is read no more can take another
        const bool first = std::ranges::find(step.args, a) == step.args.begin() + int64_t(k);
        if (is_whole(a) && first && last_use[a] == s &&
            vm.slots_[size_t(i.in[k])].kind == Slot::scratch)
          free.push_back(i.in[k]);
      }
      const int size = int(size_of(step.out));
      const int result =
          step.result >= calls ? step.result - calls : result_of_[size_t(step.result)];
      if (result >= 0) {
        i.out = add_slot(vm, Slot::result, result, size);
        written[size_t(result)] = s;
      } else {
        const auto it =
            std::ranges::find_if(free, [&](int f) { return vm.slots_[size_t(f)].size == size; });
        i.out = it != free.end() ? *it : add_scratch(vm, size);
        if (it != free.end()) free.erase(it);
      }
      if (step.result < calls) slot_[step.result] = i.out;
      vm.code_.push_back(i);
    }
    // A result may take the memory of an operand that no later step reads.
    for (size_t k = 0; k < in_.size(); ++k) {
      const int arg = -1 - int(k);
      if (!slot_.contains(arg) || vm.slots_[size_t(slot_[arg])].kind != Slot::input) continue;
      for (size_t r = 0; r < written.size(); ++r)
        if (type(program_.results[r]).dtype == in_[k].dtype && last_use[arg] <= written[r])
          vm.in_place_.emplace_back(int(k), int(r));
    }
  }

  const ops::FusedProgram& program_;
  Types in_;
  const Layout& layout_;
  KnownCondition known_;
  Shape full_;
  std::vector<char> live_;
  std::vector<int> uses_, result_of_;
  std::vector<Step> steps_;
  std::unordered_map<int, size_t> computed_;  // smaller calls: offset in the workspace
  std::unordered_map<int, int> slot_, scalar_;
  size_t workspace_ = 0;
  int weight_ = 0;
};

std::variant<Vm, Refusal> Vm::compile(const ops::FusedProgram& program, Types in,
                                      const Layout& layout, KnownCondition known) {
  Vm vm;
  if (std::string why = Compiler(program, in, layout, known).compile(vm); !why.empty())
    return Refusal{std::move(why)};
  return vm;
}

}  // namespace cairn::cpu
