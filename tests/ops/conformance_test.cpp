// SPDX-License-Identifier: Apache-2.0
// The conformance suite: every facet of every operator in the catalogue, checked against the
// others.
#include <cairn/autodiff.h>
#include <cairn/graph.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "backends/cpu/isa.h"
#include "base/parallel.h"
#include "cases.h"
#include "ir/graph.h"
#include "ops/factors.h"
#include "ops/interpreter.h"
#include "runtime/backend.h"

namespace cairn::conformance {
namespace {

class Conformance : public testing::TestWithParam<const OpDef*> {
 protected:
  const OpDef& op() const { return *GetParam(); }
  void SetUp() override {
    if (op().samples.empty()) GTEST_SKIP() << "no samples: its parameters are graphs";
  }
};

// ---- comparing ----

struct Tolerance {
  double relative;
};
Tolerance tolerance(const OpDef& op, DType d) {
  double t = 0;
  if (d == DType::f64)
    t = 1e-11;
  else if (d == DType::f32)
    t = 2e-5;
  else if (d == DType::f16)
    t = 2e-3;
  else if (d == DType::bf16)
    t = 1.6e-2;
  if (is_float(d) && d != DType::f64) t = std::max(t, op.tolerance);
  return {t};
}

// The first place where two values differ; "" when they agree.
std::string difference(const RefTensor& got, const RefTensor& expected, Tolerance t) {
  if (got.type != expected.type)
    return fmt::format("{} instead of {}", to_string(got.type), to_string(expected.type));
  double scale = 1;
  for (double v : expected.f)
    if (std::isfinite(v)) scale = std::max(scale, std::fabs(v));
  for (int64_t k = 0; k < got.numel(); ++k) {
    const double a = got.at(k), b = expected.at(k);
    const bool same =
        a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= t.relative * scale;
    if (!same)
      return fmt::format("element {} of {} is {}, expected {}", k, to_string(got.type), a, b);
  }
  return {};
}

// What a reference result becomes in memory: rounded to its dtype, as a kernel's is.
RefTensor rounded(const RefTensor& t) {
  const Tensor stored = store(t);
  return load(std::span(&stored, 1))[0];
}

void expect_agree(const Case& c, std::span<const Tensor> got, std::span<const RefTensor> expected,
                  std::string_view what) {
  ASSERT_EQ(got.size(), expected.size()) << c.describe();
  const auto values = load(got);
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(difference(values[i], rounded(expected[i]), tolerance(*c.op, expected[i].type.dtype)),
              "")
        << what << " of " << c.describe() << ", output " << i;
}

// ---- the reference and inference ----

TEST_P(Conformance, declares_samples_with_odd_shapes) {
  EXPECT_GE(op().samples.size(), 2u);
  EXPECT_LE(op().samples.size(), 32u);
  bool data = false;
  for (const Case& c : cases(op()))
    for (const TensorType& t : c.result_types()) data = data || t.numel() > 1;
  EXPECT_TRUE(data) << "no sample has more than one element";
}

TEST_P(Conformance, infers_types_it_declares) {
  for (const Case& c : all_cases(op())) {
    const TypeList out = c.result_types();
    const bool variadic = !op().outputs.empty() && op().outputs.back().variadic;
    const size_t most = op().outputs.size(), least = most - op().outputs.back().optional;
    EXPECT_TRUE(out.size() >= least && (variadic || out.size() <= most))
        << c.describe() << " gives " << out.size();
    for (size_t i = 0; i < out.size(); ++i) {
      const ArgSpec& spec = op().outputs[std::min(i, op().outputs.size() - 1)];
      EXPECT_TRUE(contains(spec.dtypes, out[i].dtype))
          << c.describe() << " gives " << to_string(out[i]);
    }
  }
}

TEST_P(Conformance, reference_fills_its_outputs_and_repeats_itself) {
  for (const Case& c : all_cases(op())) {
    const auto in = load(c.inputs);
    const auto a = run_reference(op(), c.params, in), b = run_reference(op(), c.params, in);
    const TypeList types = c.result_types();
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].type, types[i]);
      EXPECT_EQ(a[i].f.size(), a[i].is_float() ? size_t(a[i].numel()) : 0u) << c.describe();
      EXPECT_EQ(a[i].i.size(), a[i].is_float() ? 0u : size_t(a[i].numel())) << c.describe();
      EXPECT_TRUE(a[i].f == b[i].f || std::ranges::any_of(a[i].f, [](double v) { return v != v; }))
          << c.describe();
      EXPECT_EQ(a[i].i, b[i].i) << c.describe();
    }
  }
}

// ---- running ----

TEST_P(Conformance, eager_calls_give_the_reference_for_any_strides) {
  for (const Case& c : all_cases(op())) {
    using Storing = Tensor (*)(const Tensor&);
    for (auto [storing, what] : std::initializer_list<std::pair<Storing, const char*>>{
             {[](const Tensor& t) { return t; }, "dense"},
             {transposed_storage, "transposed"},
             {spaced_storage, "spaced"},
             {repeated_storage, "broadcast"}}) {
      Case stored = c;
      for (Tensor& t : stored.inputs) t = storing(t);
      const auto expected = run_reference(op(), c.params, load(stored.inputs));
      const auto got = apply(op(), stored.inputs, c.params);
      const TypeList types = c.result_types();
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].type(), types[i]) << c.describe();
      expect_agree(c, got, expected, what);
    }
  }
}

// Memory with marks behind it, so that a kernel that writes too far is seen; NaN where nobody
// wrote.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_(bytes), storage_(Storage::allocate(bytes + kMarks)) {
    std::memset(data(), 0xFF, bytes + kMarks);
  }
  ~Guarded() {
    for (size_t i = 0; i < kMarks; ++i)
      if (data()[bytes_ + i] != std::byte(0xFF)) {
        ADD_FAILURE() << "wrote beyond the end of " << bytes_ << " bytes";
        break;
      }
  }
  std::byte* data() const { return storage_->data(); }

 private:
  static constexpr size_t kMarks = 64;
  size_t bytes_;
  std::shared_ptr<Storage> storage_;
};

struct RunOptions {
  int threads = 1;
  bool deterministic = false;
  int in_place = -1;    // from which of the offered pairs on; −1: none
  bool settled = true;  // are the inputs' layouts given as dense?
};

// The results of a kernel; nothing when it refuses.
std::optional<std::vector<Tensor>> run_kernel(const Kernel& kernel, const Case& c,
                                              RunOptions options) {
  const TypeList in_types = c.types(), out_types = c.result_types();
  const std::vector<std::optional<Layout>> open(options.settled ? 0 : in_types.size());
  const KernelRequest request{
      *c.op, c.params, in_types, out_types, open, options.threads, options.deterministic};
  OfferResult result = kernel.offer(request);
  if (auto* refusal = std::get_if<Refusal>(&result)) {
    EXPECT_FALSE(refusal->reason.empty()) << kernel.name << " refuses without a reason";
    return std::nullopt;
  }
  const KernelOffer& offer = std::get<KernelOffer>(result);
  if (options.in_place >= int(offer.in_place.size())) return std::nullopt;
  const auto prepared = kernel.prepare(request, offer);
  std::vector<std::unique_ptr<Guarded>> memory;
  const auto allocate = [&](size_t bytes) {
    return memory.emplace_back(std::make_unique<Guarded>(bytes))->data();
  };
  std::vector<const void*> in;
  std::vector<void*> out;
  for (size_t i = 0; i < in_types.size(); ++i) {
    void* to = allocate(size_t(offer.in[i].bytes(in_types[i])));
    reorder_reference(in_types[i], {}, c.inputs[i].bytes(), offer.in[i], to);
    in.push_back(to);
  }
  out.resize(out_types.size());
  if (options.in_place >= 0)  // each input and output in one pair at most
    for (size_t k = 0; k < offer.in_place.size(); ++k) {
      const auto [from, to] =
          offer.in_place[(k + size_t(options.in_place)) % offer.in_place.size()];
      void* shared = const_cast<void*>(in[size_t(from)]);
      if (!out[size_t(to)] && !std::ranges::count(out, shared)) out[size_t(to)] = shared;
    }
  for (size_t i = 0; i < out_types.size(); ++i)
    if (!out[i]) out[i] = allocate(size_t(offer.out[i].bytes(out_types[i])));
  const int before = thread_count();
  set_thread_count(options.threads);
  prepared->run(in.data(), out.data(), allocate(offer.workspace_bytes));
  set_thread_count(before);
  std::vector<Tensor> results;
  for (size_t i = 0; i < out_types.size(); ++i) {
    results.push_back(Tensor::uninitialized(out_types[i]));
    reorder_reference(out_types[i], offer.out[i], out[i], {}, results.back().mutable_bytes());
  }
  return results;
}

TEST_P(Conformance, kernels_give_the_reference) {
  for (const Kernel* kernel : cpu_backend().kernels(op())) {
    if (kernel->name == "cpu.winograd" && cpu::isa() != cpu::Isa::avx2) continue;  // only there
    int accepted = 0;
    for (const Case& c : all_cases(op())) {
      const auto expected = run_reference(op(), c.params, load(c.inputs));
      std::vector<RunOptions> runs{
          {}, {.threads = 2}, {.threads = 2, .deterministic = true}, {.settled = false}};
      for (int pair = 0; pair < 8; ++pair) runs.push_back({.threads = 2, .in_place = pair});
      for (const RunOptions& options : runs)
        if (const auto got = run_kernel(*kernel, c, options)) {
          ++accepted;
          expect_agree(c, *got, expected,
                       fmt::format("{} ({} threads{}{})", kernel->name, options.threads,
                                   options.deterministic ? ", deterministic" : "",
                                   options.in_place >= 0 ? ", in place" : ""));
        }
    }
    EXPECT_GT(accepted, 0) << kernel->name << " refuses every sample";
  }
}

TEST_P(Conformance, views_show_the_reference) {
  if (!op().view) GTEST_SKIP() << "gives no views";
  int shown = 0;
  for (const Case& c : all_cases(op())) {
    const auto expected = run_reference(op(), c.params, load(c.inputs));
    for (const Tensor& x :
         {c.inputs[0], transposed_storage(c.inputs[0]), spaced_storage(c.inputs[0])}) {
      const auto view = op().view(c.params, {x.shape(), x.strides(), x.offset()}, c.types());
      if (!view) continue;
      ++shown;
      const Tensor seen =
          Tensor::view(x.storage(), {x.dtype(), view->shape}, view->strides, view->offset);
      expect_agree(c, std::span(&seen, 1), expected, "view");
    }
  }
  EXPECT_GT(shown, 0);
}

TEST_P(Conformance, decomposition_means_the_same) {
  if (!op().decompose) GTEST_SKIP() << "gives no decomposition";
  for (const Case& c : all_cases(op())) {
    const auto expected = run_reference(op(), c.params, load(c.inputs));
    auto got = op().decompose(c.params, c.inputs);
    // The parts round to 16 bits one after the other.
    Case loose = c;
    OpDef wide = op();
    wide.tolerance = std::max(wide.tolerance, size_of(expected[0].type.dtype) == 2 ? 0.05 : 1e-4);
    loose.op = &wide;
    expect_agree(loose, got, expected, "decomposition");
  }
}

// ---- gradients ----

// Fixed numbers to weigh outputs with, so that a gradient is of one scalar.
Tensor weights(const Shape& shape, uint64_t key) {
  RefTensor w = empty_reference({DType::f64, shape});
  Random random(key);
  for (double& v : w.f) v = random.uniform(0.5, 1.5) * (random.uniform() < 0.5 ? -1 : 1);
  return store(w);
}

double weighed(const std::vector<RefTensor>& out) {
  double total = 0;
  for (size_t k = 0; k < out.size(); ++k)
    if (out[k].is_float()) {
      const auto w = weights(out[k].shape(), k).to_doubles();
      for (size_t i = 0; i < w.size(); ++i) total += w[i] * out[k].f[i];
    }
  return total;
}
Tensor weighed(const std::vector<Tensor>& out) {
  Tensor total = Tensor::scalar(0, DType::f64);
  for (size_t k = 0; k < out.size(); ++k)
    if (is_float(out[k].dtype()))
      total = total + sum(cast(out[k], DType::f64) * weights(out[k].shape(), k));
  return total;
}

std::vector<size_t> float_inputs(const Case& c) {
  std::vector<size_t> list;
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (is_float(c.inputs[i].dtype())) list.push_back(i);
  return list;
}

// Through a rule of its own or through its parts; through neither when no input is a float.
bool has_gradient(const OpDef& op) {
  if (op.gradient) return true;
  return op.decompose && std::ranges::any_of(f64_cases(op), [](const Case& c) {
           return !float_inputs(c).empty();
         });
}

// The gradient of weighed(op(inputs)) with respect to the inputs named.
std::vector<Tensor> gradient(const Case& c, const std::vector<size_t>& sources) {
  Tape tape;
  std::vector<Tensor> watched;
  for (size_t i : sources) {
    tape.watch(c.inputs[i]);
    watched.push_back(c.inputs[i]);
  }
  const Tensor target = weighed(apply(*c.op, c.inputs, c.params));
  return tape.gradient(target, watched);
}

constexpr double kStep = 1e-5;

// Compares a gradient with the central differences of a function of the case's inputs.
template <class Function>
void expect_slopes(const Case& c, size_t input, const Tensor& gradient, double tolerance,
                   const char* what, Function&& f) {
  const auto slopes = gradient.to_doubles();
  double scale = 1;
  for (double s : slopes) scale = std::max(scale, std::fabs(s));
  std::vector<RefTensor> in = load(c.inputs);
  const auto n = in[input].f.size();
  const size_t stride = n > 64 ? n / 64 : 1;  // enough elements of a large input
  for (size_t k = 0; k < n; k += stride) {
    const double x = in[input].f[k];
    in[input].f[k] = x + kStep;
    const double above = f(in);
    in[input].f[k] = x - kStep;
    const double below = f(in);
    in[input].f[k] = x;
    ASSERT_NEAR(slopes[k], (above - below) / (2 * kStep), tolerance * scale)
        << what << " of " << c.describe() << " for input " << input << ", element " << k
        << ", x = " << x;
  }
}

TEST_P(Conformance, gradient_matches_differences) {
  if (!has_gradient(op())) GTEST_SKIP() << "no gradient: " << op().no_gradient_reason;
  int checked = 0;
  for (const Case& c : f64_cases(op())) {
    const auto sources = float_inputs(c);
    const auto g = gradient(c, sources);
    for (size_t s = 0; s < sources.size(); ++s) {
      ASSERT_EQ(g[s].type(), c.inputs[sources[s]].type()) << c.describe();
      // The same when only this one is wanted.
      const Tensor alone = gradient(c, {sources[s]})[0];
      EXPECT_EQ(difference(load(std::span(&alone, 1))[0], load(std::span(&g[s], 1))[0], {1e-12}),
                "")
          << "gradient wanted for input " << sources[s] << " alone, of " << c.describe();
      if (op().name == "stop_gradient") {
        for (double v : g[s].to_doubles()) EXPECT_EQ(v, 0);
      } else {
        expect_slopes(c, sources[s], g[s], 2e-6, "gradient",
                      [&](const auto& in) { return weighed(run_reference(op(), c.params, in)); });
      }
      ++checked;
    }
  }
  EXPECT_GT(checked, 0) << "it has a gradient, but no sample that takes f64";
}

// Operators whose gradient cannot be differentiated again, with the reason.
const std::map<std::string, std::string> kFirstOrderOnly{};

TEST_P(Conformance, second_order_matches_differences) {
  if (!has_gradient(op())) GTEST_SKIP() << "no gradient: " << op().no_gradient_reason;
  if (const auto it = kFirstOrderOnly.find(op().name); it != kFirstOrderOnly.end())
    GTEST_SKIP() << it->second;
  if (op().name == "stop_gradient") GTEST_SKIP() << "stops it";
  for (const Case& c : f64_cases(op())) {
    const auto sources = float_inputs(c);
    std::vector<Tensor> second;
    {
      Tape outer;
      std::vector<Tensor> watched;
      for (size_t i : sources) watched.push_back(c.inputs[i]), outer.watch(c.inputs[i]);
      second = outer.gradient(weighed(gradient(c, sources)), watched);
    }
    for (size_t s = 0; s < sources.size(); ++s)
      expect_slopes(c, sources[s], second[s], 2e-5, "second-order gradient",
                    [&](const std::vector<RefTensor>& in) {
                      Case moved = c;
                      for (size_t i = 0; i < in.size(); ++i) moved.inputs[i] = store(in[i]);
                      return weighed(load(gradient(moved, sources)));
                    });
  }
}

// Gives a gradient rule what the operator declares, and notes what it looks at.
class WatchedSaved : public Saved {
 public:
  WatchedSaved(const Case& c, std::vector<Tensor> outputs)
      : case_(c), outputs_(std::move(outputs)) {
    for (const Tensor& t : c.inputs) in_.push_back(t.type());
    for (const Tensor& t : outputs_) out_.push_back(t.type());
  }
  Tensor input(int i) const override { return look(false, i); }
  Tensor output(int i) const override { return look(true, i); }
  const TensorType& input_type(int i) const override { return in_[size_t(i)]; }
  const TensorType& output_type(int i) const override { return out_[size_t(i)]; }
  int input_count() const override { return int(in_.size()); }
  bool needs(int i) const override { return is_float(in_[size_t(i)].dtype); }
  mutable std::set<std::pair<bool, int>> seen;

 private:
  Tensor look(bool is_output, int i) const {
    bool declared = false;
    for (const SavedRef& ref : case_.op->saves)
      declared = declared || (ref.is_output == is_output && ref.index == i);
    EXPECT_TRUE(declared) << "looks at " << (is_output ? "output " : "input ") << i
                          << ", which `saves` does not name";
    seen.insert({is_output, i});
    const auto& from = is_output ? outputs_ : case_.inputs;
    return size_t(i) < from.size() ? from[size_t(i)] : Tensor();  // an optional input
  }
  const Case& case_;
  std::vector<Tensor> outputs_;
  TypeList in_, out_;
};

TEST_P(Conformance, gradient_looks_at_what_it_saves_and_no_more) {
  if (!op().gradient) {
    EXPECT_TRUE(op().saves.empty()) << "saves values, but has no gradient";
    EXPECT_FALSE(op().no_gradient_reason.empty());
    return;
  }
  std::set<std::pair<bool, int>> seen, declared;
  for (const SavedRef& ref : op().saves)
    EXPECT_TRUE(declared.insert({ref.is_output, ref.index}).second) << "saved twice";
  for (const Case& c : cases(op())) {
    if (float_inputs(c).empty()) continue;
    WatchedSaved saved(c, apply(op(), c.inputs, c.params));
    std::vector<Tensor> dy;
    for (const TensorType& t : c.result_types())
      dy.push_back(is_float(t.dtype) ? Tensor::full(t, 1) : Tensor());
    const Grads g = op().gradient(c.params, saved, dy);
    EXPECT_EQ(g.size(), c.inputs.size()) << c.describe();
    seen.insert(saved.seen.begin(), saved.seen.end());
  }
  EXPECT_EQ(seen, declared) << "{is output, index} looked at, and declared in `saves`";
}

// ---- parameters ----

TEST_P(Conformance, parameters_print_and_parse) {
  for (const Case& c : cases(op())) {
    EXPECT_EQ(op().make_params(c.params.values()), c.params);
    EXPECT_EQ(op().make_params(c.params.values()).hash(), c.params.hash());
    Graph graph;
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < c.inputs.size(); ++i)
      inputs.push_back(graph.add_input(c.inputs[i].type(), fmt::format("in{}", i)));
    graph.outputs = graph.add_node(op(), inputs, c.params);
    const std::string text = print(graph, true);
    const GraphPtr parsed = parse_graph(text);
    ASSERT_EQ(parsed->nodes.size(), 1u) << text;
    EXPECT_EQ(parsed->nodes[0].op, &op());
    EXPECT_EQ(parsed->nodes[0].params, c.params) << text;
    EXPECT_EQ(print(*parsed, true), text);
  }
  EXPECT_THROW(op().make_params({{"no_such_parameter", int64_t(1)}}), Error);
}

// ---- factors ----

// Elements [begin, end) along an axis.
RefTensor part_of(const RefTensor& t, int axis, int64_t begin, int64_t end) {
  TensorType type = t.type;
  type.shape[axis] = end - begin;
  RefTensor out = empty_reference(type);
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= t.shape()[i];
  for (int i = axis + 1; i < t.shape().rank(); ++i) inner *= t.shape()[i];
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t k = 0; k < (end - begin) * inner; ++k)
      out.copy(o * (end - begin) * inner + k, t, (o * t.shape()[axis] + begin) * inner + k);
  return out;
}

void put_part(RefTensor& whole, const RefTensor& part, int axis, int64_t begin) {
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= whole.shape()[i];
  for (int i = axis + 1; i < whole.shape().rank(); ++i) inner *= whole.shape()[i];
  const int64_t length = part.shape()[axis];
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t k = 0; k < length * inner; ++k)
      whole.copy((o * whole.shape()[axis] + begin) * inner + k, part, o * length * inner + k);
}

template <class T>
T combined(ops::Combine how, T a, T b) {
  switch (how) {
    case ops::Combine::sum:
      return a + b;
    case ops::Combine::max:
      return std::max(a, b);
    case ops::Combine::min:
      return std::min(a, b);
    case ops::Combine::prod:
      return a * b;
  }
  return a;
}

TEST_P(Conformance, factors_hold_when_inputs_are_sliced) {
  if (!op().factors) {
    EXPECT_FALSE(op().no_factors_reason.empty());
    GTEST_SKIP() << "no factors: " << op().no_factors_reason;
  }
  for (const Case& c : cases(op())) {
    const std::string text = op().factors(c.params, c.types());
    const auto in = load(c.inputs);
    const auto whole = run_reference(op(), c.params, in);
    const auto rule = ops::parse_factors(text, c.types(), c.result_types());
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      const ops::Factor& factor = rule.factors[f];
      for (int64_t parts : {2, 3}) {
        if (factor.whole || factor.length < parts) continue;
        std::vector<RefTensor> together;
        for (const auto& t : whole) together.push_back(empty_reference(t.type));
        for (int64_t p = 0; p < parts; ++p) {
          const int64_t begin = factor.length * p / parts, end = factor.length * (p + 1) / parts;
          std::vector<RefTensor> sliced;
          for (size_t i = 0; i < in.size(); ++i) {
            const int axis = ops::FactorRule::axis_of(rule.inputs[i], int(f));
            sliced.push_back(axis < 0 ? in[i] : part_of(in[i], axis, begin, end));
          }
          const auto part = run_reference(op(), c.params, sliced);
          for (size_t k = 0; k < whole.size(); ++k) {
            const int axis = ops::FactorRule::axis_of(rule.outputs[k], int(f));
            TensorType expected = whole[k].type;
            if (axis >= 0) expected.shape[axis] = end - begin;
            ASSERT_EQ(part[k].type, expected)
                << text << ", part of " << factor.name << ", " << c.describe();
            if (axis >= 0)
              put_part(together[k], part[k], axis, begin);
            else if (p == 0)
              together[k] = part[k];
            else {
              for (size_t e = 0; e < part[k].f.size(); ++e)
                together[k].f[e] = combined(factor.combine, together[k].f[e], part[k].f[e]);
              for (size_t e = 0; e < part[k].i.size(); ++e)
                together[k].i[e] = combined(factor.combine, together[k].i[e], part[k].i[e]);
            }
          }
        }
        for (size_t k = 0; k < whole.size(); ++k)
          EXPECT_EQ(difference(together[k], whole[k], {1e-9}), "")
              << "\"" << text << "\" split along " << factor.name << " into " << parts << ", "
              << c.describe();
      }
    }
  }
}

// ---- cost ----

TEST_P(Conformance, cost_counts_traffic_and_arithmetic) {
  for (const Case& c : cases(op())) {
    const TypeList in = c.types(), out = c.result_types();
    const Cost cost = op().cost(c.params, in, out);
    double written = 0;
    for (const TensorType& t : out) written += double(t.bytes());
    EXPECT_GE(cost.bytes, written) << c.describe();
    EXPECT_TRUE(std::isfinite(cost.flops) && cost.flops >= 0) << c.describe();
    if (cost.flops > 0) continue;
    // No arithmetic: then every element is one of the inputs', or a constant that the parameters
    // give.
    const auto loaded = load(c.inputs);
    std::set<double> known{0, 1};
    for (const RefTensor& t : loaded)
      for (int64_t k = 0; k < t.numel(); ++k) known.insert(t.at(k));
    for (const NamedValue& v : c.params.values())
      if (auto* number = std::get_if<double>(&v.value)) known.insert(*number);
    if (op().name == "iota") continue;  // counts, which costs nothing
    for (const RefTensor& t : run_reference(op(), c.params, loaded))
      for (int64_t k = 0; k < t.numel(); ++k)
        EXPECT_TRUE(known.contains(t.at(k))) << c.describe() << " computes, but costs no flops";
  }
}

// ---- errors ----

// Runs a wrong call: it must not be let through in silence as our own fault.
void expect_typed_error(const OpDef& op, const std::vector<Tensor>& inputs, const Params& params,
                        bool must_fail, const std::string& what) {
  try {
    apply(op, inputs, params, {"user.cpp", 7});
    EXPECT_FALSE(must_fail) << what << ": accepted";
  } catch (const Error& e) {
    EXPECT_TRUE(e.code() == ErrorCode::invalid_argument || e.code() == ErrorCode::shape_mismatch ||
                e.code() == ErrorCode::dtype_unsupported)
        << what << ": " << e.what();
    EXPECT_TRUE(e.message().starts_with(op.name))
        << what << ": does not name the operator: " << e.what();
    EXPECT_NE(e.message().find("got "), std::string::npos) << what << ": " << e.what();
    EXPECT_NE(e.message().find("expected "), std::string::npos) << what << ": " << e.what();
    EXPECT_EQ(e.frames().size() ? e.frames()[0] : "", "user.cpp:7") << what;
  }
}

TEST_P(Conformance, wrong_inputs_give_typed_errors) {
  for (const Case& c : cases(op())) {
    const std::string call = c.describe();
    if (!op().inputs.empty()) {
      if (!op().inputs.back().optional || c.inputs.size() == op().inputs.size()) {
        auto fewer = c.inputs;
        fewer.resize(op().inputs.size() - 1 - op().inputs.back().optional);
        if (!op().inputs.back().optional || !fewer.empty())
          expect_typed_error(op(), fewer, c.params, true, call + " with too few inputs");
      }
    }
    if (op().inputs.empty() || !op().inputs.back().variadic) {
      auto more = c.inputs;
      while (more.size() <= op().inputs.size()) more.push_back(Tensor::ones({2}));
      expect_typed_error(op(), more, c.params, true, call + " with too many inputs");
    }
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      auto inputs = c.inputs;
      inputs[i] = {};
      expect_typed_error(op(), inputs, c.params, true,
                         fmt::format("{} with input {} undefined", call, i));
      for (DType d : kAllDTypes) {
        inputs[i] = Tensor::full({d, c.inputs[i].shape()}, 0);
        expect_typed_error(op(), inputs, c.params, !contains(argument(op(), i).dtypes, d),
                           fmt::format("{} with input {} as {}", call, i, name(d)));
      }
      std::vector<Shape> shapes{Shape{}, Shape{0}, Shape::filled(kMaxRank, 1)};
      Shape longer = c.inputs[i].shape();
      if (longer.rank() < kMaxRank) longer.push_back(3), shapes.push_back(longer);
      for (int axis = 0; axis < c.inputs[i].rank(); ++axis)
        for (int64_t change : {1, -1}) {
          Shape s = c.inputs[i].shape();
          s[axis] = std::max<int64_t>(0, s[axis] + change);
          shapes.push_back(s);
        }
      for (const Shape& s : shapes) {
        inputs[i] = Tensor::full({c.inputs[i].dtype(), s}, 1);
        expect_typed_error(
            op(), inputs, c.params, false,
            fmt::format("{} with input {} as {}", call, i, to_string(inputs[i].type())));
      }
    }
  }
}

// ---- ONNX ----

TEST_P(Conformance, onnx_mapping_reads_what_it_writes) {
  if (!op().onnx.write) {
    EXPECT_FALSE(op().onnx.reason.empty());
    return;
  }
  for (const Case& c : all_cases(op())) {
    OnnxCall call;
    try {
      call = op().onnx.write(c.params, c.types());
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ErrorCode::unsupported) << e.what();
      ASSERT_TRUE(op().decompose) << c.describe() << " can be written in no way: " << e.what();
      continue;
    }
    for (const auto& [position, tensor] : call.constants) {
      EXPECT_GE(position, int(c.inputs.size())) << "constants stand behind the inputs";
      EXPECT_TRUE(tensor.defined());
    }
    if (!op().onnx.read) continue;  // another operator reads it
    const auto params = op().onnx.read(call, c.types());
    ASSERT_TRUE(params) << c.describe();
    const auto expected = run_reference(op(), c.params, load(c.inputs));
    TypeList types;
    for (const auto& t : expected) types.push_back(t.type);
    ASSERT_EQ(op().infer(*params, c.types()), types)
        << c.describe() << " read as " << params->to_string();
    const auto got = run_reference(op(), *params, load(c.inputs));
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(
          difference(rounded(got[i]), rounded(expected[i]), tolerance(op(), got[i].type.dtype)), "")
          << c.describe() << " read as " << params->to_string();
  }
}

std::vector<const OpDef*> catalogue() { return {all_ops().begin(), all_ops().end()}; }

INSTANTIATE_TEST_SUITE_P(Operators, Conformance, testing::ValuesIn(catalogue()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace cairn::conformance
