// SPDX-License-Identifier: Apache-2.0
// Layer normalisation over the last axes, record by record: y = weight (x − mean) / √(variance + ε)
// + bias.
#include <cmath>

#include "base/parallel.h"
#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"
#include "ops/nn/norm.h"

namespace cairn {
namespace ops {
namespace {

void expect_last_axes(Types in, size_t x, std::initializer_list<const char*> names) {
  const Shape &s = in[x].shape, &w = in[x + 1].shape;
  const int lead = s.rank() - w.rank();
  if (w.rank() < 1 || lead < 0 || Shape(s.span().subspan(size_t(lead))) != w)
    wrong_input("weight", in[x + 1], fmt::format("the last axes of x {}", to_string(in[x])));
  size_t i = x;
  for (const char* name : names) {
    if (++i >= in.size()) break;  // no bias
    expect_shape(name, in[i], w, "as the weight");
    expect_norm_dtype(name, in[i], in[x].dtype);
    if (in[i].dtype != in[x + 1].dtype)
      fail(ErrorCode::dtype_unsupported,
           fmt::format("input {}: got {}, expected {} as input weight", name, to_string(in[i]),
                       cairn::name(in[x + 1].dtype)));
  }
}

// "a b c!, c!, c! -> a b c!" and the like: the normalised axes stay whole.
std::string norm_factors(Types in, size_t x, int rows_in, int weights_in, int weights_out) {
  const int rank = in[x].shape.rank(), lead = rank - in[x + 1].shape.rank();
  std::vector<int> whole;
  for (int i = lead; i < rank; ++i) whole.push_back(i);
  const std::string row = axis_names(rank, whole), weight = row.substr(size_t(2 * lead));
  std::string text = row;
  for (int i = 1; i < rows_in; ++i) text += ", " + row;
  for (int i = 0; i < weights_in; ++i) text += ", " + weight;
  text += " -> " + row;
  for (int i = 0; i < weights_out; ++i) text += ", " + weight;
  return text;
}

struct RowStatistics {
  double mean = 0, scale = 0;  // scale: 1 / √(variance + ε)
  RowStatistics(const double* x, int64_t length, double epsilon) {
    double squares = 0;
    for (int64_t i = 0; i < length; ++i) mean += x[i];
    mean /= double(length);
    for (int64_t i = 0; i < length; ++i) squares += (x[i] - mean) * (x[i] - mean);
    scale = 1 / std::sqrt(squares / double(length) + epsilon);
  }
};

int64_t rows_of(const Shape& x, const Shape& weight) {
  return weight.numel() ? x.numel() / weight.numel() : 0;
}

Tensor as(const Tensor& t, DType dtype) { return t.dtype() == dtype ? t : cast(t, dtype); }

}  // namespace

extern const OpDef layer_norm_op = define(OpSpec<NormParams>{
    .name = "layer_norm",
    .inputs = {{"x", any_float},
               {"weight", any_float},
               {.name = "bias", .dtypes = any_float, .optional = true}},
    .outputs = {{"y"}},
    .infer =
        [](auto&, Types in) {
          expect_last_axes(in, 0, {"weight", "bias"});
          return TypeList{in[0]};
        },
    .factors = [](auto&, Types in) { return norm_factors(in, 0, 1, int(in.size()) - 1, 0); },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const int64_t length = in[1].numel();
          parallel_for(rows_of(in[0].shape(), in[1].shape()), 1, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
              const double* x = in[0].f.data() + row * length;
              const RowStatistics of(x, length, p.epsilon);
              for (int64_t i = 0; i < length; ++i)
                out[0].f[size_t(row * length + i)] =
                    (x[i] - of.mean) * of.scale * in[1].f[size_t(i)] +
                    (in.size() > 2 ? in[2].f[size_t(i)] : 0);
            }
          });
        },
    .saves = {input(0), input(1)},  // a row's statistics cost less to find again than to keep
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          Grads g = apply(layer_norm_grad_op, std::array{dy[0], s.input(0), s.input(1)}, p);
          g.resize(size_t(s.input_count()));
          return g;
        },
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 8); },
    .fusion = row_reduction(),
    .onnx =
        OnnxMapping<NormParams>{
            "LayerNormalization", 17,
            [](auto& p, Types in) {
              return OnnxCall{{{"axis", int64_t(-in[1].shape.rank())}, {"epsilon", p.epsilon}}, {}};
            },
            [](const OnnxCall& c, Types in) -> std::optional<NormParams> {
              const int rank = in[0].shape.rank();
              if (normalize_axis(c.integer("axis", -1), rank) != rank - in[1].shape.rank())
                return std::nullopt;  // a weight that broadcasts
              return NormParams{c.number("epsilon", 1e-5)};
            }},
    .samples = {{{f32({2, 3, 5}), f32({5}), f32({5})}},
                {{f32({4, 3, 2}), f32({3, 2}), f32({3, 2})}, {.epsilon = 1e-3}},
                {{f32({3, 7}), f32({7})}},
                {{f32({6}), f32({6}), f32({6})}},
                {{f32({0, 4}), f32({4}), f32({4})}}},
});

extern const OpDef layer_norm_grad_op = define(OpSpec<NormParams>{
    .name = "layer_norm_grad",
    .inputs = {{"dy", any_float}, {"x", any_float}, {"weight", any_float}},
    .outputs = {{"dx"}, {"dweight"}, {"dbias"}},
    .infer =
        [](auto&, Types in) {
          check_same_dtype(in.first(2), {"dy", "x"});
          expect_shape("dy", in[0], in[1].shape, "as x");
          expect_last_axes(in, 1, {"weight"});
          return TypeList{in[1], in[2], in[2]};
        },
    .factors = [](auto&, Types in) { return norm_factors(in, 1, 2, 1, 2); },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const auto &dy = in[0].f, &x = in[1].f, &weight = in[2].f;
          const int64_t length = in[2].numel(), rows = rows_of(in[1].shape(), in[2].shape());
          std::vector<double> normal(x.size());
          parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
              const auto first = size_t(row * length);
              const RowStatistics of(&x[first], length, p.epsilon);
              double total = 0, along = 0;  // sums of g and of g · normal, where g = dy · weight
              for (size_t i = 0; i < size_t(length); ++i) {
                normal[first + i] = (x[first + i] - of.mean) * of.scale;
                total += dy[first + i] * weight[i];
                along += dy[first + i] * weight[i] * normal[first + i];
              }
              for (size_t i = 0; i < size_t(length); ++i)
                out[0].f[first + i] =
                    of.scale * (dy[first + i] * weight[i] - total / double(length) -
                                normal[first + i] * along / double(length));
            }
          });
          parallel_for(length, 1, [&](int64_t begin, int64_t end) {
            for (int64_t row = 0; row < rows; ++row)
              for (int64_t i = begin; i < end; ++i) {
                const auto at = size_t(row * length + i);
                out[1].f[size_t(i)] += dy[at] * normal[at];
                out[2].f[size_t(i)] += dy[at];
              }
          });
        },
    .saves = none("no gradient of its own"),
    .gradient = no_gradient("differentiated through its decomposition"),
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 16); },
    .fusion = opaque("sums over rows and over columns"),
    .onnx = no_onnx("only training needs it"),
    .samples = {{{f32({2, 3, 5}), f32({2, 3, 5}), f32({5})}},
                {{f32({4, 3, 2}), f32({4, 3, 2}), f32({3, 2})}, {.epsilon = 1e-3}},
                {{f32({6}), f32({6}), f32({6})}},
                {{f32({0, 4}), f32({0, 4}), f32({4})}}},
    .decompose =
        [](auto& p, std::span<const Tensor> in) {
          const DType dtype = in[2].dtype();
          const Tensor dy = as(in[0], dtype), x = as(in[1], dtype), weight = in[2];
          const int lead = x.rank() - weight.rank();
          Axes first, last;
          for (int i = 0; i < x.rank(); ++i) (i < lead ? first : last).push_back(i);
          const auto row_mean = [&](const Tensor& t) { return mean(t, last, Keep::yes); };
          const auto over_rows = [&](const Tensor& t) { return first.empty() ? t : sum(t, first); };
          const Tensor centred = x - row_mean(x),
                       scale = rsqrt(row_mean(square(centred)) + p.epsilon);
          const Tensor normal = centred * scale, g = dy * weight;
          const Tensor dx = scale * (g - row_mean(g) - normal * row_mean(g * normal));
          return std::vector{as(dx, in[1].dtype()), over_rows(dy * normal), over_rows(dy)};
        },
});

}  // namespace ops

Tensor layer_norm(const Arg& x, const Arg& weight, const Arg& bias, double epsilon) {
  return apply1(ops::layer_norm_op, {x.tensor(), weight.tensor(), bias.tensor()},
                ops::NormParams{epsilon}, x.site());
}

}  // namespace cairn
