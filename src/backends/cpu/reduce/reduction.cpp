// SPDX-License-Identifier: Apache-2.0
// Sums, means, extremes and products over axes of f32, dense or with channels in blocks.
// Accumulates in double, as the reference does. The order of additions depends on shape and layout
// alone, not on the number of threads.
#include "ops/reduce/reduction.h"

#include <cmath>
#include <limits>

#include "backends/cpu/backend.h"
#include "backends/cpu/planes.h"
#include "base/parallel.h"
#include "ops/catalog.h"

namespace cairn::cpu {
namespace {

struct Add {
  static constexpr double start = 0;
  static double join(double a, double x) { return a + x; }
};
struct Multiply {
  static constexpr double start = 1;
  static double join(double a, double x) { return a * x; }
};
struct Maximum {  // NaN wins; no shortcut between the tests, which would be a branch
  static constexpr double start = -std::numeric_limits<double>::infinity();
  static double join(double a, double x) { return (a > x) | (a != a) ? a : x; }
};
struct Minimum {
  static constexpr double start = std::numeric_limits<double>::infinity();
  static double join(double a, double x) { return (a < x) | (a != a) ? a : x; }
};

// One loop over the input, in the order of memory: `step` is how far the result moves, 0 where it
// is reduced.
struct Loop {
  int64_t length, step;
};

// The loops of a reduction, neighbours joined where both move alike, and never none.
std::vector<Loop> loops_of(const KernelRequest& r, const Planes* planes) {
  const Shape& x = r.in[0].shape;
  const auto reduced = ops::reduced_axes(r.params.as<ops::ReduceParams>().axes, x.rank());
  Shape step = Shape::filled(x.rank(), 0);
  int64_t results = 1;
  for (int i = x.rank() - 1; i >= 0; --i)
    if (!reduced[size_t(i)]) step[i] = results, results *= x[i];
  std::vector<Loop> all;
  for (int i = 0; i < x.rank(); ++i) all.push_back({x[i], step[i]});
  if (planes && planes->block > 1) {
    all[1] = {planes->blocks, step[1] * planes->block};
    all.push_back({planes->block, step[1]});
  }
  std::vector<Loop> loops;
  for (const Loop& l : all) {
    if (l.length == 1) continue;
    if (!loops.empty() && loops.back().step == l.step * l.length)
      loops.back() = {loops.back().length * l.length, l.step};
    else
      loops.push_back(l);
  }
  if (loops.empty()) loops.push_back({1, 0});
  return loops;
}

template <class Op>
class Reduction : public PreparedKernel {
 public:
  Reduction(std::vector<Loop> loops, int64_t results, double divisor)
      : loops_(std::move(loops)), results_(results), divisor_(divisor) {
    strides_.assign(loops_.size(), 1);
    for (size_t i = loops_.size() - 1; i > 0; --i) strides_[i - 1] = strides_[i] * loops_[i].length;
    grain_ = 1 + (int64_t(1) << 14) / std::max<int64_t>(1, strides_[split()]);
  }

  // How many parts are summed apart; the workspace holds the results once for each.
  static int64_t parts(const std::vector<Loop>& loops, int64_t results) {
    int64_t elements = 1;
    for (const Loop& l : loops) elements *= l.length;
    if (loops[0].step != 0 || results >= kManyResults || elements < kFewElements) return 1;
    return std::min<int64_t>(kLogicalChunks, loops[0].length);
  }

  void run(const void* const* in, void* const* out, void* workspace) const override {
    const auto* x = static_cast<const float*>(in[0]);
    auto* y = static_cast<float*>(out[0]);
    auto* sums = static_cast<double*>(workspace);
    const int64_t parts = Reduction::parts(loops_, results_);
    std::fill_n(sums, parts * results_, Op::start);
    const auto range = [&](size_t split, int64_t begin, int64_t end, double* to) {
      std::vector<Loop> loops = loops_;  // with one of them cut short
      loops[split].length = end - begin;
      walk(loops, 0, x + begin * strides_[split], to + begin * loops_[split].step);
    };
    if (parts > 1) {
      parallel_chunks(loops_[0].length, [&](int part, int64_t begin, int64_t end) {
        range(0, begin, end, sums + part * results_);
      });
      for (int64_t part = 1; part < parts; ++part)
        for (int64_t k = 0; k < results_; ++k)
          sums[k] = Op::join(sums[k], sums[part * results_ + k]);
    } else {
      parallel_for(loops_[split()].length, grain_,
                   [&](int64_t begin, int64_t end) { range(split(), begin, end, sums); });
    }
    for (int64_t k = 0; k < results_; ++k) y[k] = float(sums[k] / divisor_);
  }

 private:
  // Where results are many, parts of them would take too much memory: threads then share the
  // results out.
  static constexpr int64_t kManyResults = 1 << 12, kFewElements = 1 << 15;
  size_t split() const { return loops_[0].step == 0 && loops_.size() > 1 ? 1 : 0; }

  void walk(const std::vector<Loop>& loops, size_t i, const float* x, double* to) const {
    const Loop& loop = loops[i];
    if (i + 1 == loops.size()) {
      if (loop.step == 0)
        *to = Op::join(*to, row(x, loop.length));
      else if (loop.step == 1)
        for (int64_t k = 0; k < loop.length; ++k) to[k] = Op::join(to[k], x[k]);
      else
        for (int64_t k = 0; k < loop.length; ++k)
          to[k * loop.step] = Op::join(to[k * loop.step], x[k]);
    } else if (i + 2 == loops.size() && loop.step == 0 && loops[i + 1].step == 1 &&
               loops[i + 1].length == 8) {
      columns<8>(x, loop.length, to);  // a block of channels
    } else if (i + 2 == loops.size() && loop.step == 0 && loops[i + 1].step == 1 &&
               loops[i + 1].length == 16) {
      columns<16>(x, loop.length, to);
    } else {
      for (int64_t k = 0; k < loop.length; ++k)
        walk(loops, i + 1, x + k * strides_[i], to + k * loop.step);
    }
  }
  // Eight lanes hide the latency of one operation behind the others.
  static double row(const float* x, int64_t count) {
    double lanes[8];
    std::fill_n(lanes, 8, Op::start);
    columns<8>(x, count / 8, lanes);
    for (int64_t k = count / 8 * 8; k < count; ++k) lanes[k % 8] = Op::join(lanes[k % 8], x[k]);
    for (int k = 1; k < 8; ++k) lanes[0] = Op::join(lanes[0], lanes[k]);
    return lanes[0];
  }
  template <int width>
  static void columns(const float* x, int64_t rows, double* to) {
    double lanes[width];
    std::copy_n(to, width, lanes);
    for (int64_t r = 0; r < rows; ++r, x += width)
      for (int k = 0; k < width; ++k) lanes[k] = Op::join(lanes[k], x[k]);
    std::copy_n(lanes, width, to);
  }

  std::vector<Loop> loops_;
  std::vector<int64_t> strides_;  // of the input
  int64_t results_, grain_;
  double divisor_;
};

std::optional<Planes> exact_planes(const Shape& shape, const Layout& layout) {
  const auto planes = Planes::of(shape, layout);
  return planes && planes->channels % planes->block == 0 ? planes : std::nullopt;
}

template <class Op>
OfferResult offer(const KernelRequest& r) {
  if (std::string why = unless_f32(r); !why.empty()) return Refusal{std::move(why)};
  const Shape& x = r.in[0].shape;
  Layout layout =
      common_layout(r, x, [&](const Layout& l) { return l.is_dense() || exact_planes(x, l); });
  const auto planes = exact_planes(x, layout);
  const int64_t results = r.out[0].numel();
  const int64_t parts = Reduction<Op>::parts(loops_of(r, planes ? &*planes : nullptr), results);
  return KernelOffer{
      .in = {layout}, .out = {{}}, .workspace_bytes = size_t(parts * results) * sizeof(double)};
}
template <class Op>
std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer& o) {
  const auto planes = exact_planes(r.in[0].shape, o.in[0]);
  const int64_t results = r.out[0].numel();
  const bool average = &r.op == &ops::mean_op;
  return std::make_unique<Reduction<Op>>(loops_of(r, planes ? &*planes : nullptr), results,
                                         average ? double(r.in[0].numel()) / double(results) : 1.0);
}

}  // namespace

extern const Kernel sum_kernel{&ops::sum_op, "cpu.loops", offer<Add>, prepare<Add>};
extern const Kernel mean_kernel{&ops::mean_op, "cpu.loops", offer<Add>, prepare<Add>};
extern const Kernel max_kernel{&ops::max_op, "cpu.loops", offer<Maximum>, prepare<Maximum>};
extern const Kernel min_kernel{&ops::min_op, "cpu.loops", offer<Minimum>, prepare<Minimum>};
extern const Kernel prod_kernel{&ops::prod_op, "cpu.loops", offer<Multiply>, prepare<Multiply>};

}  // namespace cairn::cpu
