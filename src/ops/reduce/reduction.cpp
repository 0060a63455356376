// SPDX-License-Identifier: Apache-2.0
// The table of reductions over axes: sum mean max min prod.
#include "ops/reduce/reduction.h"

#include <cmath>
#include <limits>

#include "ops/catalog.h"
#include "ops/expect.h"

namespace cairn {
namespace ops {

std::array<bool, kMaxRank> reduced_axes(const std::vector<int64_t>& axes, int rank) {
  std::array<bool, kMaxRank> reduced{};
  if (axes.empty()) std::fill_n(reduced.begin(), rank, true);
  for (int64_t given : axes) {
    bool& axis = reduced[size_t(normalize_axis(given, rank))];
    if (axis) wrong_param("axes", to_string(ParamValue(axes)), "each axis once");
    axis = true;
  }
  return reduced;
}

Shape reduced_shape(const Shape& x, const std::array<bool, kMaxRank>& reduced, bool keep) {
  Shape out;
  for (int i = 0; i < x.rank(); ++i)
    if (!reduced[size_t(i)])
      out.push_back(x[i]);
    else if (keep)
      out.push_back(1);
  return out;
}

Tensor with_kept_axes(const Tensor& t, const ReduceParams& p, const Shape& x) {
  return p.keep ? t : reshape(t, reduced_shape(x, reduced_axes(p.axes, x.rank()), true));
}

namespace {

struct Reduction {
  std::string name;
  DTypeSet dtypes = any_number;
  double real_start;
  double (*real)(double, double);
  int64_t (*integer_start)(DType) = nullptr;
  int64_t (*integer)(int64_t, int64_t) = nullptr;
  bool average = false;        // divide by the count
  bool needs_element = false;  // of nothing there is none
  std::string factor;          // how parts combine: "" sum, "^max" …, "!" they do not
  Listed<SavedRef> saves;
  Facet<Grads(const ReduceParams&, const Saved&, std::span<const Tensor> dy)> gradient;
  std::string onnx;
  bool axes_are_input = false;  // in ONNX
  std::function<Tensor(const ReduceParams&, const Tensor&)> decompose = {};
};

std::string reduction_factors(const ReduceParams& p, const Shape& x, const std::string& suffix) {
  const auto reduced = reduced_axes(p.axes, x.rank());
  std::string in, out;
  for (int i = 0; i < x.rank(); ++i) {
    const std::string letter(1, char('a' + i));
    in += (i ? " " : "") + letter + (reduced[size_t(i)] ? suffix : "");
    if (!reduced[size_t(i)] || p.keep) out += " " + (reduced[size_t(i)] ? "1" : letter);
  }
  return in + " ->" + (out.empty() ? " " : out);
}

OpDef reduce_op(Reduction r, const char* file = __builtin_FILE()) {
  std::vector<SampleOf<ReduceParams>> samples{{{f32({2, 3})}, {}},
                                              {{f32({4, 1, 5})}, {{1, -1}, true}},
                                              {{f32({2, 3, 4})}, {{0, 2}, false}},
                                              {{f32({})}, {}},
                                              {{f32({0, 3})}, {{1}, false}}};
  if (!r.needs_element) samples.push_back({{f32({0, 3})}, {{0}, true}});
  if (r.integer) samples.push_back({{i32({2, 5}, -4, 5)}, {{1}, true}});
  OpSpec<ReduceParams> spec{
      .name = r.name,
      .inputs = {{"x", r.dtypes}},
      .outputs = {{"y"}},
      .infer =
          [needs_element = r.needs_element](auto& p, Types in) {
            const Shape& x = in[0].shape;
            const auto reduced = reduced_axes(p.axes, x.rank());
            for (int i = 0; needs_element && i < x.rank(); ++i)
              if (reduced[size_t(i)] && x[i] == 0)
                wrong_input("x", in[0], fmt::format("at least one element along axis {}", i));
            return TypeList{{in[0].dtype, reduced_shape(x, reduced, p.keep)}};
          },
      .factors = [suffix = r.factor](
                     auto& p, Types in) { return reduction_factors(p, in[0].shape, suffix); },
      .reference =
          [r](auto& p, RefIn in, RefOut out) {
            const auto reduced = reduced_axes(p.axes, in[0].shape().rank());
            // Read the small result as the broadcast operand of the large input.
            const BroadcastIndex to(reduced_shape(in[0].shape(), reduced, true), in[0].shape());
            if (in[0].is_float()) {
              for (double& v : out[0].f) v = r.real_start;
              for (int64_t k = 0; k < in[0].numel(); ++k) {
                double& v = out[0].f[size_t(to(k))];
                v = r.real(v, in[0].f[size_t(k)]);
              }
              if (r.average)
                for (double& v : out[0].f) v /= double(in[0].numel()) / double(out[0].numel());
            } else {
              for (int64_t& v : out[0].i) v = r.integer_start(in[0].type.dtype);
              for (int64_t k = 0; k < in[0].numel(); ++k) {
                int64_t& v = out[0].i[size_t(to(k))];
                v = r.integer(v, in[0].i[size_t(k)]);
              }
            }
          },
      .saves = std::move(r.saves),
      .gradient = std::move(r.gradient),
      .cost =
          [](auto&, Types in, Types out) {
            return Cost{double(in[0].numel()), traffic(in, out)};
          },
      .fusion = reduction(),
      .onnx =
          OnnxMapping<ReduceParams>{
              r.onnx, 13,
              [as_input = r.axes_are_input](auto& p, Types) {
                OnnxCall call{{{"keepdims", int64_t(p.keep)}}, {}};
                if (p.axes.empty()) return call;
                if (as_input)
                  call.constants = {{1, Tensor::from(p.axes, {int64_t(p.axes.size())})}};
                else
                  call.attributes.push_back({"axes", p.axes});
                return call;
              },
              [as_input = r.axes_are_input](const OnnxCall& c,
                                            Types) -> std::optional<ReduceParams> {
                ReduceParams p{{}, c.integer("keepdims", 1) != 0};
                if (!as_input)
                  p.axes = c.integers("axes", {});
                else if (auto* axes = c.constant(1))
                  p.axes = axes->template values<int64_t>();
                if (p.axes.empty() && c.integer("noop_with_empty_axes", 0)) return std::nullopt;
                return p;
              }},
      .samples = std::move(samples),
  };
  if (r.decompose)
    spec.decompose = [f = std::move(r.decompose)](auto& p, std::span<const Tensor> in) {
      return std::vector{f(p, in[0])};
    };
  return define(std::move(spec), file);
}

double count(const ReduceParams& p, const Shape& x) {
  double n = 1;
  const auto reduced = reduced_axes(p.axes, x.rank());
  for (int i = 0; i < x.rank(); ++i)
    if (reduced[size_t(i)]) n *= double(x[i]);
  return n;
}

Tensor spread(const Tensor& dy, const ReduceParams& p, const Shape& x) {
  return broadcast_to(with_kept_axes(dy, p, x), x);
}

// To the elements that equal the result, shared evenly.
Grads to_extremes(const ReduceParams& p, const Saved& s, const Tensor& dy) {
  const Tensor x = s.input(0);
  const Tensor chosen = cast(equal(x, with_kept_axes(s.output(0), p, x.shape())), x.dtype());
  return grads(chosen * (with_kept_axes(dy, p, x.shape()) / sum(chosen, p.axes, Keep::yes)));
}

// With at most one zero among the factors the product of the others is p / x or p; with more it is
// 0.
Grads prod_gradient(const ReduceParams& p, const Saved& s, const Tensor& dy) {
  const Tensor x = s.input(0), zero = equal(x, 0), others = select(zero, 1, x);
  const Tensor product = prod(others, p.axes, Keep::yes);
  const Tensor zeros = sum(cast(zero, x.dtype()), p.axes, Keep::yes);
  const Tensor at_zero = select(equal(zeros, 1), product, 0),
               elsewhere = select(equal(zeros, 0), product / others, 0);
  return grads(with_kept_axes(dy, p, x.shape()) * select(zero, at_zero, elsewhere));
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t lowest(DType d) {
  return visit_dtype(d, [](auto tag) -> int64_t {
    if constexpr (std::is_integral_v<decltype(tag)>)
      return int64_t(std::numeric_limits<decltype(tag)>::min());
    else
      return 0;
  });
}
int64_t highest(DType d) {
  return visit_dtype(d, [](auto tag) -> int64_t {
    if constexpr (std::is_integral_v<decltype(tag)>)
      return int64_t(std::numeric_limits<decltype(tag)>::max());
    else
      return 0;
  });
}

}  // namespace

extern const OpDef sum_op = reduce_op(Reduction{
    .name = "sum",
    .real_start = 0,
    .real = [](double a, double x) { return a + x; },
    .integer_start = [](DType) { return int64_t(0); },
    .integer = [](int64_t a, int64_t x) { return int64_t(uint64_t(a) + uint64_t(x)); },
    .saves = none("linear"),
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          return grads(spread(dy[0], p, s.input_type(0).shape));
        },
    .onnx = "ReduceSum",
    .axes_are_input = true,
});

extern const OpDef mean_op = reduce_op(Reduction{
    .name = "mean",
    .dtypes = any_float,
    .real_start = 0,
    .real = [](double a, double x) { return a + x; },
    .average = true,
    .factor = "!",  // means of parts do not add up; the decomposition can be split
    .saves = none("linear"),
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          const Shape& x = s.input_type(0).shape;
          return grads(spread(dy[0] * (1 / std::fmax(1, count(p, x))), p, x));
        },
    .onnx = "ReduceMean",
    .decompose = [](auto& p,
                    auto& x) { return sum(x, p.axes, Keep(p.keep)) / count(p, x.shape()); },
});

extern const OpDef max_op = reduce_op(Reduction{
    .name = "max",
    .real_start = -kInfinity,
    .real = [](double a, double x) { return std::isnan(a) || a > x ? a : x; },
    .integer_start = lowest,
    .integer = [](int64_t a, int64_t x) { return a > x ? a : x; },
    .needs_element = true,
    .factor = "^max",
    .saves = {input(0), output(0)},
    .gradient = [](auto& p, const Saved& s,
                   std::span<const Tensor> dy) { return to_extremes(p, s, dy[0]); },
    .onnx = "ReduceMax",
});

extern const OpDef min_op = reduce_op(Reduction{
    .name = "min",
    .real_start = kInfinity,
    .real = [](double a, double x) { return std::isnan(a) || a < x ? a : x; },
    .integer_start = highest,
    .integer = [](int64_t a, int64_t x) { return a < x ? a : x; },
    .needs_element = true,
    .factor = "^min",
    .saves = {input(0), output(0)},
    .gradient = [](auto& p, const Saved& s,
                   std::span<const Tensor> dy) { return to_extremes(p, s, dy[0]); },
    .onnx = "ReduceMin",
});

extern const OpDef prod_op = reduce_op(Reduction{
    .name = "prod",
    .real_start = 1,
    .real = [](double a, double x) { return a * x; },
    .integer_start = [](DType) { return int64_t(1); },
    .integer = [](int64_t a, int64_t x) { return int64_t(uint64_t(a) * uint64_t(x)); },
    .factor = "^prod",
    .saves = {input(0)},
    .gradient = [](auto& p, const Saved& s,
                   std::span<const Tensor> dy) { return prod_gradient(p, s, dy[0]); },
    .onnx = "ReduceProd",
});

}  // namespace ops

#define CAIRN_REDUCTION(name)                                                               \
  Tensor name(const Arg& x, const Axes& axes, Keep keep) {                                  \
    return apply1(ops::name##_op, {x.tensor()}, ops::ReduceParams{axes, keep == Keep::yes}, \
                  x.site());                                                                \
  }
CAIRN_REDUCTION(sum)
CAIRN_REDUCTION(mean)
CAIRN_REDUCTION(max)
CAIRN_REDUCTION(min)
CAIRN_REDUCTION(prod)
#undef CAIRN_REDUCTION

}  // namespace cairn
