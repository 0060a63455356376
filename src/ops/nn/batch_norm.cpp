// SPDX-License-Identifier: Apache-2.0
// Batch normalisation, channel by channel: y = gamma (x − mean) / √(variance + ε) + beta, with the
// statistics of the batch (train, and its gradient) or with given ones (infer).
#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"
#include "ops/nn/norm.h"

namespace cairn {
namespace ops {
namespace {

void expect_channels(Types in, size_t x, std::initializer_list<const char*> names) {
  const Shape& s = in[x].shape;
  if (s.rank() < 2) wrong_input("x", in[x], "at least two axes [n, c, ...]");
  size_t i = x;
  for (const char* name : names) {
    expect_shape(name, in[++i], {s[1]}, fmt::format("as x has {} channels", s[1]));
    expect_norm_dtype(name, in[i], in[x].dtype);
    if (in[i].dtype != in[x + 1].dtype)
      fail(ErrorCode::dtype_unsupported,
           fmt::format("input {}: got {}, expected {} as input {}", name, to_string(in[i]),
                       cairn::name(in[x + 1].dtype), *names.begin()));
  }
}

// ---- the rules' vocabulary ----
Tensor as(const Tensor& t, DType dtype) { return t.dtype() == dtype ? t : cast(t, dtype); }

Axes all_but_channels(int rank) {
  Axes axes{0};
  for (int i = 2; i < rank; ++i) axes.push_back(i);
  return axes;
}

// [c] → [1, c, 1, …], to broadcast over x.
Tensor over(const Tensor& per_channel, int rank) {
  Shape shape = Shape::filled(rank, 1);
  shape[1] = per_channel.shape()[0];
  return reshape(per_channel, shape);
}

// Elements a channel; 1 for an empty batch, which has no elements to divide for.
double count_of(const Shape& x) {
  double count = 1;
  for (int i = 0; i < x.rank(); ++i)
    if (i != 1) count *= double(x[i]);
  return std::max(count, 1.0);
}

std::string norm_factors(int rank, bool statistics_of_batch, int pictures_in, int vectors_in,
                         int pictures_out, int vectors_out) {
  std::vector<int> whole;
  for (int i = 0; statistics_of_batch && i < rank; ++i)
    if (i != 1) whole.push_back(i);
  const std::string x = axis_names(rank, whole);
  const auto list = [&](int pictures, int vectors) {
    std::string text;
    for (int i = 0; i < pictures + vectors; ++i)
      text += (i ? ", " : "") + (i < pictures ? x : std::string("b"));
    return text;
  };
  return list(pictures_in, vectors_in) + " -> " + list(pictures_out, vectors_out);
}

// Calls body(c, rows) in parallel over channels, where rows(f) calls f(first element, past the
// last) for each contiguous run of the channel, in order.
template <class Body>
void for_each_channel(const Shape& x, Body&& body) {
  const AxisView v(x, 1);
  parallel_for(v.length, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      body(size_t(c), [&](auto&& f) {
        for (int64_t n = 0; n < v.outer; ++n) {
          const int64_t first = (n * v.length + c) * v.inner;
          for (int64_t i = first; i < first + v.inner; ++i) f(size_t(i));
        }
      });
  });
}

}  // namespace

extern const OpDef batch_norm_train_op = define(OpSpec<NormParams>{
    .name = "batch_norm_train",
    .inputs = {{"x", any_float}, {"gamma", any_float}, {"beta", any_float}},
    .outputs = {{"y"}, {"mean"}, {"variance"}},
    .infer =
        [](auto&, Types in) {
          expect_channels(in, 0, {"gamma", "beta"});
          return TypeList{in[0], in[1], in[1]};
        },
    .factors = [](auto&, Types in) { return norm_factors(in[0].shape.rank(), true, 1, 2, 1, 2); },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const auto &x = in[0].f, &gamma = in[1].f, &beta = in[2].f;
          const double count = count_of(in[0].shape());
          for_each_channel(in[0].shape(), [&](size_t c, auto&& elements) {
            double total = 0, squares = 0;
            elements([&](size_t i) { total += x[i]; });
            const double mean = total / count;
            elements([&](size_t i) { squares += (x[i] - mean) * (x[i] - mean); });
            const double variance = squares / count,
                         scale = gamma[c] / std::sqrt(variance + p.epsilon);
            elements([&](size_t i) { out[0].f[i] = (x[i] - mean) * scale + beta[c]; });
            out[1].f[c] = mean;
            out[2].f[c] = variance;
          });
        },
    .saves = {input(0), input(1), output(1), output(2)},
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          Grads g(3);
          const Tensor x = s.input(0);
          if (dy[0])
            g = apply(batch_norm_grad_op,
                      std::array{dy[0], x, s.input(1), s.output(1), s.output(2)}, p);
          if (!s.needs(0)) return g;
          const auto add_to_dx = [&](const Tensor& more) { g[0] = g[0] ? g[0] + more : more; };
          const double count = count_of(x.shape());
          const DType dtype = s.input_type(1).dtype;
          const auto spread = [&](const Tensor& t, double factor) {
            return over(t * factor, x.rank());
          };
          if (dy[1]) add_to_dx(broadcast_to(as(spread(dy[1], 1 / count), x.dtype()), x.shape()));
          if (dy[2])
            add_to_dx(as((as(x, dtype) - over(s.output(1), x.rank())) * spread(dy[2], 2 / count),
                         x.dtype()));
          return g;
        },
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 7); },
    .fusion = opaque("reads x twice; the activation after it joins it as a fused operator"),
    .onnx = no_onnx(
        "training_mode=1 also updates running statistics; exported models use batch_norm_infer"),
    .samples = {{{f32({4, 3, 2, 3}), f32({3}), f32({3})}},
                {{f32({5, 2}), f32({2}), f32({2})}, {.epsilon = 1e-3}},
                {{f32({2, 4, 3}), f32({4}), f32({4})}},
                {{f32({0, 3, 2, 2}), f32({3}), f32({3})}}},
});

extern const OpDef batch_norm_grad_op = define(OpSpec<NormParams>{
    .name = "batch_norm_grad",
    .inputs = {{"dy", any_float},
               {"x", any_float},
               {"gamma", any_float},
               {"mean", any_float},
               {"variance", any_float}},
    .outputs = {{"dx"}, {"dgamma"}, {"dbeta"}},
    .infer =
        [](auto&, Types in) {
          check_same_dtype(in.first(2), {"dy", "x"});
          expect_shape("dy", in[0], in[1].shape, "as x");
          expect_channels(in, 1, {"gamma", "mean", "variance"});
          return TypeList{in[1], in[2], in[2]};
        },
    .factors = [](auto&, Types in) { return norm_factors(in[0].shape.rank(), true, 2, 3, 1, 2); },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const auto &dy = in[0].f, &x = in[1].f, &gamma = in[2].f;
          const double count = count_of(in[1].shape());
          for_each_channel(in[1].shape(), [&](size_t c, auto&& elements) {
            const double mean = in[3].f[c], scale = 1 / std::sqrt(in[4].f[c] + p.epsilon);
            double dbeta = 0, dgamma = 0;
            elements([&](size_t i) {
              dbeta += dy[i];
              dgamma += dy[i] * (x[i] - mean) * scale;
            });
            elements([&](size_t i) {
              out[0].f[i] = gamma[c] * scale *
                            (dy[i] - dbeta / count - (x[i] - mean) * scale * dgamma / count);
            });
            out[1].f[c] = dgamma;
            out[2].f[c] = dbeta;
          });
        },
    .saves = none("no gradient of its own"),
    .gradient = no_gradient("differentiated through its decomposition"),
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 11); },
    .fusion = opaque("reads x and dy twice"),
    .onnx = no_onnx("only training needs it"),
    .samples = {{{f32({4, 3, 2, 3}), f32({4, 3, 2, 3}), f32({3}), f32({3}), f32({3}, 0.5, 2)}},
                {{f32({5, 2}), f32({5, 2}), f32({2}), f32({2}), f32({2}, 0.5, 2)},
                 {.epsilon = 1e-3}},
                {{f32({0, 3, 2, 2}), f32({0, 3, 2, 2}), f32({3}), f32({3}), f32({3}, 0.5, 2)}}},
    .decompose =
        [](auto& p, std::span<const Tensor> in) {
          const DType dtype = in[2].dtype();
          const int rank = in[1].rank();
          const double count = count_of(in[1].shape());
          const Tensor dy = as(in[0], dtype), x = as(in[1], dtype),
                       scale = rsqrt(in[4] + p.epsilon);
          const Tensor normal = (x - over(in[3], rank)) * over(scale, rank);
          const Tensor dbeta = sum(dy, all_but_channels(rank)),
                       dgamma = sum(dy * normal, all_but_channels(rank));
          const Tensor dx = over(in[2] * scale, rank) * (dy - over(dbeta * (1 / count), rank) -
                                                         normal * over(dgamma * (1 / count), rank));
          return std::vector{as(dx, in[1].dtype()), dgamma, dbeta};
        },
});

extern const OpDef batch_norm_infer_op = define(OpSpec<NormParams>{
    .name = "batch_norm_infer",
    .inputs = {{"x", any_float},
               {"gamma", any_float},
               {"beta", any_float},
               {"mean", any_float},
               {"variance", any_float}},
    .outputs = {{"y"}},
    .infer =
        [](auto&, Types in) {
          expect_channels(in, 0, {"gamma", "beta", "mean", "variance"});
          return TypeList{in[0]};
        },
    .factors = [](auto&, Types in) { return norm_factors(in[0].shape.rank(), false, 1, 4, 1, 0); },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          for_each_channel(in[0].shape(), [&](size_t c, auto&& elements) {
            const double mean = in[3].f[c], scale = in[1].f[c] / std::sqrt(in[4].f[c] + p.epsilon);
            elements([&](size_t i) { out[0].f[i] = (in[0].f[i] - mean) * scale + in[2].f[c]; });
          });
        },
    .saves = {input(0), input(1), input(3), input(4)},
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          const int rank = s.input_type(0).shape.rank();
          const Axes axes = all_but_channels(rank);
          const Tensor gamma = s.input(1), d = as(dy[0], gamma.dtype());
          const Tensor inverse = rsqrt(s.input(4) + p.epsilon), scale = gamma * inverse;
          Grads g(5);
          if (s.needs(0)) g[0] = as(d * over(scale, rank), s.input_type(0).dtype);
          Tensor dbeta, dscale;  // sums of dy and of dy (x − mean)
          if (s.needs(2) || s.needs(3)) dbeta = sum(d, axes);
          if (s.needs(1) || s.needs(4))
            dscale = sum(d * (as(s.input(0), gamma.dtype()) - over(s.input(3), rank)), axes);
          if (s.needs(1)) g[1] = dscale * inverse;
          if (s.needs(2)) g[2] = dbeta;
          if (s.needs(3)) g[3] = -(dbeta * scale);
          if (s.needs(4)) g[4] = dscale * scale * square(inverse) * -0.5;
          return g;
        },
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 2); },
    .fusion =
        opaque("folded into the convolution before it, or decomposed into elementwise operators"),
    .onnx = OnnxMapping<NormParams>{"BatchNormalization", 15,
                                    [](auto& p, Types) {
                                      return OnnxCall{{{"epsilon", p.epsilon}}, {}};
                                    },
                                    [](const OnnxCall& c, Types) -> std::optional<NormParams> {
                                      if (c.integer("training_mode", 0) != 0) return std::nullopt;
                                      return NormParams{c.number("epsilon", 1e-5)};
                                    }},
    .samples = {{{f32({2, 3, 2, 3}), f32({3}), f32({3}), f32({3}), f32({3}, 0.5, 2)}},
                {{f32({5, 2}), f32({2}), f32({2}), f32({2}), f32({2}, 0.5, 2)}, {.epsilon = 1e-3}},
                {{f32({0, 3, 2, 2}), f32({3}), f32({3}), f32({3}), f32({3}, 0.5, 2)}}},
    .decompose =
        [](auto& p, std::span<const Tensor> in) {
          const int rank = in[0].rank();
          const DType dtype = in[1].dtype();
          const Tensor scale = in[1] * rsqrt(in[4] + p.epsilon), shift = in[2] - in[3] * scale;
          return std::vector{
              as(as(in[0], dtype) * over(scale, rank) + over(shift, rank), in[0].dtype())};
        },
});

}  // namespace ops

BatchNormResult batch_norm_train(const Arg& x, const Arg& gamma, const Arg& beta, double epsilon) {
  const auto out =
      apply(ops::batch_norm_train_op, std::array{x.tensor(), gamma.tensor(), beta.tensor()},
            ops::NormParams{epsilon}, x.site());
  return {out[0], out[1], out[2]};
}

Tensor batch_norm_infer(const Arg& x, const Arg& gamma, const Arg& beta, const Arg& mean,
                        const Arg& variance, double epsilon) {
  return apply1(ops::batch_norm_infer_op,
                {x.tensor(), gamma.tensor(), beta.tensor(), mean.tensor(), variance.tensor()},
                ops::NormParams{epsilon}, x.site());
}

}  // namespace cairn
