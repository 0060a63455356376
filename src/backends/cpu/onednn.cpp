// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/onednn.h"

#include <dnnl_debug.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "backends/cpu/isa.h"
#include "base/parallel.h"

#ifdef CAIRN_STD_THREADS
#include <dlfcn.h>
#endif

namespace cairn::cpu::onednn {
namespace {

using dnnl::memory;

// How many OpenMP threads oneDNN uses from here on, on this thread.
class Threads {
 public:
#ifdef CAIRN_STD_THREADS  // oneDNN still runs on libgomp: keep it to the calling thread
  explicit Threads(int) {
    static auto* set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (set) set(1);
  }
  static int usable(int) { return 1; }
#else
  explicit Threads(int count) : before_(thread_count()) {
    if (count != before_) set_thread_count(count), changed_ = true;
  }
  ~Threads() {
    if (changed_) set_thread_count(before_);
  }
  static int usable(int count) { return count; }

 private:
  int before_;
  bool changed_ = false;
#endif
};

dnnl::engine make_engine() {
  constexpr dnnl::cpu_isa limits[] = {dnnl::cpu_isa::sse41, dnnl::cpu_isa::avx2,
                                      dnnl::cpu_isa::isa_default};
  dnnl::set_max_cpu_isa(
      limits[size_t(isa())]);  // refused, without harm, once oneDNN has generated code
  dnnl::set_primitive_cache_capacity(4096);
  return {dnnl::engine::kind::cpu, 0};
}

dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}

memory::data_type data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return memory::data_type::f32;
    case DType::i32:
      return memory::data_type::s32;
    case DType::i8:
      return memory::data_type::s8;
    case DType::u8:
    case DType::boolean:
      return memory::data_type::u8;
    default:
      throw dnnl::error(dnnl_unimplemented, "no such element type");
  }
}

memory::format_tag format_tag(const std::string& letters) {
  static const auto tags = [] {
    std::unordered_map<std::string, memory::format_tag> map;
    for (int t = dnnl_format_tag_any + 1; t < dnnl_format_tag_last; ++t)
      map.emplace(dnnl_fmt_tag2str(dnnl_format_tag_t(t)), memory::format_tag(t));
    return map;
  }();
  const auto it = tags.find(letters);
  if (it == tags.end()) throw dnnl::error(dnnl_unimplemented, "no such layout");
  return it->second;
}

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

[[noreturn]] void rethrow(const dnnl::error& e) {
  if (e.status == dnnl_out_of_memory)
    fail(ErrorCode::out_of_memory, "oneDNN: out of memory", "use a smaller batch");
  fail(ErrorCode::internal, "oneDNN: " + reason(e));
}

// Implementations whose sums do not depend on how the work is split over threads: each output
// element is summed by one thread, in one order (onednn_test and conv_test prove it). Not so for
// weight gradients.
bool splits_no_sum(const Call& call) {
  for (const Argument& a : call.arguments)
    if (a.operand < 0 && a.step == 0) return false;
  constexpr std::string_view proven[] = {"jit:avx2", "jit_1x1:avx2", "jit_dw:avx2"};
  return std::ranges::count(proven, call.implementation) != 0;
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine e = make_engine();
  return e;
}

memory::desc desc(const TensorType& type, const Layout& layout) {
  engine();  // the limit on instruction sets comes first
  memory::dims dims(type.shape.begin(), type.shape.end());
  if (dims.empty()) dims.push_back(1);
  const int rank = int(dims.size());
  if (!layout.blocks().empty()) return {dims, data_type(type.dtype), format_tag(layout.tag(rank))};
  memory::dims strides(dims.size());
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    const auto axis = size_t(layout.is_dense() ? i : layout.order()[size_t(i)]);
    strides[axis] = stride;
    stride *= dims[axis];
  }
  return {dims, data_type(type.dtype), strides};
}

memory::desc desc(const memory::dims& dims, std::string_view tag) {
  engine();
  return {dims, memory::data_type::f32, format_tag(std::string(tag))};
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Task::Task(int threads, bool deterministic, int64_t records, const Build& build)
    : call_threads_(Threads::usable(threads)) {
  {
    Threads scope(call_threads_);
    calls_.push_back(build(records));
  }
  parts_.push_back({0, 0});
  if (deterministic && !splits_no_sum(calls_[0])) {
    for (const Argument& a : calls_[0].arguments)
      if (a.operand < 0 && a.step == 0) sum_bytes_ = aligned(a.desc.get_size());
    // Partial sums cost memory: no more than 64 MB of them, but at least four parts.
    int64_t count = std::min<int64_t>(kLogicalChunks, records);
    if (sum_bytes_)
      count = std::min(count, std::max<int64_t>(4, (int64_t(64) << 20) / int64_t(sum_bytes_)));
    call_threads_ = 1;
    workers_ = int(std::min<int64_t>(threads, count));
    calls_.clear();
    parts_.clear();
    Threads scope(1);
    calls_.push_back(build(records / count));
    if (records % count) calls_.push_back(build(records / count + 1));
    for (int64_t p = 0; p < count; ++p) {
      const int64_t first = records * p / count, length = records * (p + 1) / count - first;
      parts_.push_back({length > records / count, first});
    }
  }
  for (const Call& call : calls_)
    scratch_bytes_ = std::max(scratch_bytes_, aligned(call.scratch_bytes));
}

void Task::execute(const Part& part, const void* const* in, void* const* out, void* sum,
                   void* scratch) const {
  const Call& call = calls_[part.call];
  constexpr size_t kMost = 8;
  CAIRN_CHECK(call.arguments.size() < kMost, "too many arguments for one primitive");
  std::array<memory, kMost> memories;
  std::array<dnnl_exec_arg_t, kMost> args;
  int count = 0;
  const auto add = [&](int name, const memory::desc& md, void* data) {
    auto& m = memories[size_t(count)] = memory(md, engine(), data);
    args[size_t(count++)] = {name, m.get()};
  };
  try {
    for (const Argument& a : call.arguments) {
      void* data = a.operand >= 0   ? const_cast<void*>(in[a.operand])
                   : a.step || !sum ? out[~a.operand]
                                    : sum;
      add(a.name, a.desc, static_cast<std::byte*>(data) + part.first * a.step);
    }
    if (call.scratch_bytes) {
      const memory::desc bytes({int64_t(call.scratch_bytes)}, memory::data_type::u8,
                               memory::format_tag::a);
      add(DNNL_ARG_SCRATCHPAD, bytes, scratch);
    }
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(call.primitive.get(), stream().get(), count, args.data()),
        "a primitive failed");
  } catch (const dnnl::error& e) {
    rethrow(e);
  }
}

void Task::run(const void* const* in, void* const* out, void* workspace) const {
  auto* const sums = static_cast<std::byte*>(workspace);
  auto* const scratch = sums + sum_bytes_ * (parts_.size() - 1);
  if (parts_.size() == 1) {
    Threads scope(call_threads_);
    return execute(parts_[0], in, out, nullptr, scratch);
  }
  const auto count = int64_t(parts_.size());
  parallel_for(workers_, 1, [&](int64_t first, int64_t last) {
    Threads scope(1);
    for (int64_t worker = first; worker < last; ++worker)
      for (int64_t p = count * worker / workers_; p < count * (worker + 1) / workers_; ++p)
        execute(parts_[size_t(p)], in, out,
                p && sum_bytes_ ? sums + (p - 1) * int64_t(sum_bytes_) : nullptr,
                scratch + worker * int64_t(scratch_bytes_));
  });
  if (!sum_bytes_) return;
  for (const Argument& a : calls_[0].arguments) {
    if (a.operand >= 0 || a.step) continue;
    auto* total = static_cast<float*>(out[~a.operand]);
    parallel_for(int64_t(a.desc.get_size() / sizeof(float)), 4096,
                 [&](int64_t first, int64_t last) {
                   for (int64_t p = 0; p + 1 < count; ++p) {
                     auto* part = reinterpret_cast<const float*>(sums + p * int64_t(sum_bytes_));
                     for (int64_t i = first; i < last; ++i) total[i] += part[i];
                   }
                 });
  }
}

std::string reason(const dnnl::error& error) {
  return fmt::format("{} ({})", error.what(), dnnl_status2str(error.status));
}

std::unique_ptr<PreparedKernel> reorder(const TensorType& type, const Layout& from,
                                        const Layout& to) {
  if (type.numel() == 0) return nullptr;
  try {
    const memory::desc src = desc(type, from), dst = desc(type, to);
    return std::make_unique<Task>(thread_count(), false, 1, [&](int64_t) {
      return make_call(dnnl::reorder::primitive_desc(engine(), src, engine(), dst),
                       {{DNNL_ARG_FROM, 0, src}, {DNNL_ARG_TO, ~0, dst}});
    });
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

}  // namespace cairn::cpu::onednn
