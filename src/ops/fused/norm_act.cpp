// SPDX-License-Identifier: Apache-2.0
#include "ops/fused/norm_act.h"

#include <cmath>

#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

constexpr const char* kMadeByCompiler = "made by the compiler after differentiation";

void check_params(const NormActParams& p) {
  if (p.activation != "none" && p.activation != "relu" && p.activation != "silu")
    wrong_param("activation", p.activation, "none, relu or silu");
  if (p.activation == "silu" && p.residual) wrong_param("residual", "true", "false with silu");
}
// x with channels on axis 1, and the inputs from `first` on that hold one number a channel.
void check_channels(const TensorType& x, Types in, size_t first,
                    std::initializer_list<const char*> names) {
  if (x.shape.rank() < 2) wrong_input("x", x, "two axes or more");
  for (const char* name : names) {
    const TensorType& t = in[first++];
    expect_shape(name, t, {x.shape[1]}, fmt::format("as x has {} channels", x.shape[1]));
    expect_norm_dtype(name, t, x.dtype);
  }
}
void check_like(const char* name, const TensorType& got, const TensorType& x) {
  if (got != x) wrong_input(name, got, to_string(x) + " as input x");
}
// Channels are independent; every other axis is needed whole.
std::string picture_factors(const Shape& x) {
  std::vector<int> whole;
  for (int i = 0; i < x.rank(); ++i)
    if (i != 1) whole.push_back(i);
  return axis_names(x.rank(), whole);
}

// Calls body(channel, first element, elements) for each stretch of one channel, in order within a
// channel.
template <class Body>
void for_each_stretch(const Shape& x, Body&& body) {
  const AxisView v(x, 1);
  for (int64_t c = 0; c < v.length; ++c)
    for (int64_t n = 0; n < v.outer; ++n)
      body(size_t(c), size_t((n * v.length + c) * v.inner), size_t(v.inner));
}
double rows(const Shape& x) { return x[1] ? double(x.numel() / x[1]) : 0; }

void train_reference(const NormActParams& p, RefIn in, RefOut out) {
  const auto &x = in[0].f, &gamma = in[1].f, &beta = in[2].f;
  auto &y = out[0].f, &mean = out[1].f, &variance = out[2].f;
  const double m = rows(in[0].shape());
  for_each_stretch(in[0].shape(), [&](size_t c, size_t at, size_t n) {
    for (size_t k = at; k < at + n; ++k) mean[c] += x[k] / m;
  });
  for_each_stretch(in[0].shape(), [&](size_t c, size_t at, size_t n) {
    for (size_t k = at; k < at + n; ++k) variance[c] += (x[k] - mean[c]) * (x[k] - mean[c]) / m;
  });
  for_each_stretch(in[0].shape(), [&](size_t c, size_t at, size_t n) {
    const double scale = gamma[c] / std::sqrt(variance[c] + p.epsilon);
    for (size_t k = at; k < at + n; ++k) {
      y[k] = (x[k] - mean[c]) * scale + beta[c] + (p.residual ? in[3].f[k] : 0.0);
      if (p.activation == "relu" && y[k] < 0) y[k] = 0;
      if (p.activation == "silu") y[k] *= logistic(y[k]);
    }
  });
}

void grad_reference(const NormActParams& p, RefIn in, RefOut out) {
  const auto &y = in[1].f, &x = in[2].f, &gamma = in[3].f, &mean = in[4].f, &variance = in[5].f;
  auto &dx = out[0].f, &dgamma = out[1].f, &dbeta = out[2].f;
  const double m = rows(in[2].shape());
  const auto dy = [&](size_t k, size_t c) {
    if (p.activation == "silu") {
      const double z = (x[k] - mean[c]) * gamma[c] / std::sqrt(variance[c] + p.epsilon) + in[6].f[c], s = logistic(z);
      return in[0].f[k] * s * (1 + z * (1 - s));
    }
    return p.activation == "relu" && !(y[k] > 0) ? 0.0 : in[0].f[k];
  };
  for_each_stretch(in[2].shape(), [&](size_t c, size_t at, size_t n) {
    const double rstd = 1 / std::sqrt(variance[c] + p.epsilon);
    for (size_t k = at; k < at + n; ++k)
      dbeta[c] += dy(k, c), dgamma[c] += dy(k, c) * (x[k] - mean[c]) * rstd;
  });
  for_each_stretch(in[2].shape(), [&](size_t c, size_t at, size_t n) {
    const double rstd = 1 / std::sqrt(variance[c] + p.epsilon);
    for (size_t k = at; k < at + n; ++k) {
      dx[k] = gamma[c] * rstd * (dy(k, c) - dbeta[c] / m - (x[k] - mean[c]) * rstd * dgamma[c] / m);
      if (p.residual) out[3].f[k] = dy(k, c);
    }
  });
}

}  // namespace

extern const OpDef batch_norm_act_train_op = define(OpSpec<NormActParams>{
    .name = "batch_norm_act_train",
    .inputs = {{"x", any_float},
               {"gamma", any_float},
               {"beta", any_float},
               {.name = "residual", .dtypes = any_float, .optional = true}},
    .outputs = {{"y"}, {"mean"}, {"variance"}},
    .infer =
        [](auto& p, Types in) {
          check_params(p);
          check_channels(in[0], in, 1, {"gamma", "beta"});
          if (p.residual != (in.size() == 4))
            fail(ErrorCode::invalid_argument,
                 "input residual: expected when, and only when, residual=true");
          if (p.residual) check_like("residual", in[3], in[0]);
          return TypeList{in[0], in[1], in[1]};
        },
    .factors =
        [](auto& p, Types in) {
          const std::string x = picture_factors(in[0].shape);
          return x + ", b, b" + (p.residual ? ", " + x : "") + " -> " + x + ", b, b";
        },
    .reference = train_reference,
    .saves = none("no gradient"),
    .gradient = no_gradient(kMadeByCompiler),
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 7); },
    .fusion = opaque("fused already"),
    .onnx = no_onnx("training only"),
    .samples =
        {
            {{f32({2, 3, 4, 5}), f32({3}), f32({3})}, {}},
            {{f32({3, 8, 5, 5}), f32({8}), f32({8})}, {.activation = "relu"}},
            {{f32({2, 4, 3, 3}), f32({4}), f32({4}), f32({2, 4, 3, 3})},
             {.activation = "relu", .residual = true}},
            {{f32({6, 5}), f32({5}), f32({5}), f32({6, 5})}, {.residual = true}},
            {{f32({2, 3, 4, 5}), f32({3}), f32({3})}, {.activation = "silu"}},
        },
});

extern const OpDef batch_norm_act_grad_op = define(OpSpec<NormActParams>{
    .name = "batch_norm_act_grad",
    .inputs = {{"dy", any_float},
               {"y", any_float},
               {"x", any_float},
               {"gamma", any_float},
               {"mean", any_float},
               {"variance", any_float},
               {.name = "beta", .dtypes = any_float, .optional = true}},
    .outputs = {{"dx"}, {"dgamma"}, {"dbeta"}, {.name = "dresidual", .optional = true}},
    .infer =
        [](auto& p, Types in) {
          check_params(p);
          check_like("dy", in[0], in[2]);
          check_like("y", in[1], in[2]);
          check_channels(in[2], in, 3, {"gamma", "mean", "variance"});
          if ((p.activation == "silu") != (in.size() == 7))
            fail(ErrorCode::invalid_argument, "input beta: expected when, and only when, activation is silu");
          if (in.size() == 7) check_channels(in[2], in, 6, {"beta"});
          TypeList out{in[2], in[3], in[3]};
          if (p.residual) out.push_back(in[2]);
          return out;
        },
    .factors =
        [](auto& p, Types in) {
          const std::string x = picture_factors(in[2].shape);
          return x + ", " + x + ", " + x + ", b, b, b" + (in.size() == 7 ? ", b" : "") + " -> " + x +
                 ", b, b" + (p.residual ? ", " + x : "");
        },
    .reference = grad_reference,
    .saves = none("no gradient"),
    .gradient = no_gradient(kMadeByCompiler),
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 10); },
    .fusion = opaque("fused already"),
    .onnx = no_onnx("training only"),
    .samples =
        {
            {{f32({2, 3, 4, 5}), f32({2, 3, 4, 5}), f32({2, 3, 4, 5}), f32({3}), f32({3}),
              f32({3}, 0.2, 2)},
             {}},
            {{f32({3, 8, 5, 5}), f32({3, 8, 5, 5}), f32({3, 8, 5, 5}), f32({8}), f32({8}),
              f32({8}, 0.2, 2)},
             {.activation = "relu"}},
            {{f32({2, 4, 3, 3}), f32({2, 4, 3, 3}), f32({2, 4, 3, 3}), f32({4}), f32({4}),
              f32({4}, 0.2, 2)},
             {.activation = "relu", .residual = true}},
            {{f32({2, 3, 4, 5}), f32({2, 3, 4, 5}), f32({2, 3, 4, 5}), f32({3}), f32({3}),
              f32({3}, 0.2, 2), f32({3})},
             {.activation = "silu"}},
        },
});

}  // namespace ops
}  // namespace cairn
