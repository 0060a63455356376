// SPDX-License-Identifier: Apache-2.0
// Convolution: y[n,k] = bias[k] + Σ_c x[n,c] ∗ weight[k,c], and the two operators that are its
// gradients. Every fact about an operator stands in its one definition.
// (trail: a call → operator + parameters)
#include "ops/nn/conv.h"

#include <algorithm>

#include "base/parallel.h"
#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

ConvSizes sizes(const ConvParams& p, const Shape& x, const Shape& weight) {
  ConvSizes z{x[0],
              x[1],
              x[2],
              x[3],
              weight[0],
              weight[2],
              weight[3],
              0,
              0,
              p.groups,
              {x[2], weight[2], p.stride[0], p.pad_before[0], p.pad_after[0], p.dilation[0]},
              {x[3], weight[3], p.stride[1], p.pad_before[1], p.pad_after[1], p.dilation[1]}};
  z.y = z.vertical.count();
  z.x = z.horizontal.count();
  return z;
}

void expect_conv_params(const ConvParams& p) {
  expect_pair("stride", p.stride, 1);
  expect_pair("pad_before", p.pad_before, 0);
  expect_pair("pad_after", p.pad_after, 0);
  expect_pair("dilation", p.dilation, 1);
  if (p.groups < 1) wrong_param("groups", std::to_string(p.groups), "at least 1");
}

void expect_weight(const TensorType& weight, int64_t groups) {
  if (weight.shape.rank() != 4) wrong_input("weight", weight, "four axes [k, c/groups, r, s]");
  if (weight.shape[2] < 1 || weight.shape[3] < 1)
    wrong_input("weight", weight, "a kernel of at least 1 × 1");
  if (weight.shape[0] % groups != 0)
    wrong_input("weight", weight,
                fmt::format("output channels that divide into {} groups", groups));
}

void expect_windows(const TensorType& x, const ConvSizes& z) {
  if (z.y < 1 || z.x < 1)
    wrong_input("x", x,
                fmt::format("at least {} × {} pixels with the padding, as the kernel spans that",
                            z.vertical.extent(), z.horizontal.extent()));
}

}  // namespace

ConvSizes conv_sizes(const ConvParams& p, Types in) {
  expect_conv_params(p);
  check_same_dtype(in, {"x", "weight", "bias"});
  expect_picture("x", in[0]);
  expect_weight(in[1], p.groups);
  const int64_t c = in[0].shape[1], k = in[1].shape[0];
  if (in[1].shape[1] * p.groups != c || c % p.groups != 0)
    wrong_input(
        "weight", in[1],
        fmt::format("[k, c/groups, r, s] for an x of {} channels in {} groups", c, p.groups));
  if (in.size() > 2)
    expect_shape("bias", in[2], {k}, fmt::format("as the weight has {} output channels", k));
  const ConvSizes z = sizes(p, in[0].shape, in[1].shape);
  expect_windows(in[0], z);
  return z;
}

ConvSizes conv_grad_input_sizes(const ConvGradInputParams& p, Types in) {
  expect_conv_params(p);
  expect_pair("size", p.size, 0);
  check_same_dtype(in, {"dy", "weight"});
  expect_picture("dy", in[0]);
  expect_weight(in[1], p.groups);
  const Shape x{in[0].shape[0], in[1].shape[1] * p.groups, p.size[0], p.size[1]};
  const ConvSizes z = sizes(p, x, in[1].shape);
  expect_shape("dy", in[0], z.output(), "as conv gives for this weight and size");
  return z;
}

ConvSizes conv_grad_weight_sizes(const ConvGradWeightParams& p, Types in) {
  expect_conv_params(p);
  expect_pair("kernel", p.kernel, 1);
  check_same_dtype(in, {"x", "dy"});
  expect_picture("x", in[0]);
  expect_picture("dy", in[1]);
  const int64_t c = in[0].shape[1], k = in[1].shape[1];
  if (c % p.groups != 0)
    wrong_input("x", in[0], fmt::format("channels that divide into {} groups", p.groups));
  if (k % p.groups != 0)
    wrong_input("dy", in[1], fmt::format("channels that divide into {} groups", p.groups));
  const ConvSizes z = sizes(p, in[0].shape, {k, c / p.groups, p.kernel[0], p.kernel[1]});
  expect_windows(in[0], z);
  expect_shape("dy", in[1], z.output(), "as conv gives for this x and kernel");
  return z;
}

namespace {

// ---- references ----
// Each parallel task owns its outputs and sums in one fixed order, so results depend on nothing
// else. The innermost loops run over channels: those are many where pictures have become small.

void add_scaled(int64_t count, double scale, const double* __restrict from, double* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] += scale * from[i];
}

// [outer, a, b] → [outer, b, a], a cache line of b at a time.
std::vector<double> swap_inner(const std::vector<double>& from, int64_t outer, int64_t a,
                               int64_t b) {
  std::vector<double> to(from.size());
  const int64_t lines = (b + 7) / 8;
  parallel_for(outer * lines, 1 + 4096 / (8 * a + 1), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const int64_t o = line / lines, first = line % lines * 8, last = std::min(b, first + 8);
      for (int64_t i = 0; i < a; ++i)
        for (int64_t j = first; j < last; ++j)
          to[size_t((o * b + j) * a + i)] = from[size_t((o * a + i) * b + j)];
    }
  });
  return to;
}

void conv_reference(const ConvParams& p, RefIn in, RefOut out) {
  const ConvSizes z = sizes(p, in[0].shape(), in[1].shape());
  const int64_t cg = z.c / z.groups, kg = z.k / z.groups;
  const std::vector<double> weight =
      swap_inner(in[1].f, z.groups, kg, cg * z.r * z.s);  // [c, r, s, k/groups]
  parallel_for(z.n * z.y, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> row(size_t(z.x * z.k));  // one output row, channels innermost
    for (int64_t task = begin; task < end; ++task) {
      const int64_t n = task / z.y, y = task % z.y;
      for (int64_t i = 0; i < z.x * z.k; ++i)
        row[size_t(i)] = in.size() > 2 ? in[2].f[size_t(i % z.k)] : 0;
      for (int64_t c = 0; c < z.c; ++c)
        for (int64_t r = 0; r < z.r; ++r) {
          const int64_t h = z.vertical.at(y, r);
          if (!z.vertical.inside(h)) continue;
          const double* src = &in[0].f[size_t(((n * z.c + c) * z.h + h) * z.w)];
          for (int64_t s = 0; s < z.s; ++s)
            for (int64_t x = 0; x < z.x; ++x)
              if (const int64_t w = z.horizontal.at(x, s); z.horizontal.inside(w))
                add_scaled(kg, src[w], &weight[size_t(((c * z.r + r) * z.s + s) * kg)],
                           &row[size_t(x * z.k + c / cg * kg)]);
        }
      for (int64_t k = 0; k < z.k; ++k)
        for (int64_t x = 0; x < z.x; ++x)
          out[0].f[size_t(((n * z.k + k) * z.y + y) * z.x + x)] = row[size_t(x * z.k + k)];
    }
  });
}

void conv_grad_input_reference(const ConvGradInputParams& p, RefIn in, RefOut out) {
  const ConvSizes z = sizes(p, out[0].shape(), in[1].shape());
  const int64_t cg = z.c / z.groups, kg = z.k / z.groups;
  const std::vector<double> weight =
      swap_inner(in[1].f, z.k, cg, z.r * z.s);  // [k, r, s, c/groups]
  parallel_for(z.n * z.h, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> row(size_t(z.w * z.c));  // one row of dx, channels innermost
    for (int64_t task = begin; task < end; ++task) {
      const int64_t n = task / z.h, h = task % z.h;
      std::fill(row.begin(), row.end(), 0);
      for (int64_t k = 0; k < z.k; ++k)
        for (int64_t r = 0; r < z.r; ++r) {
          const int64_t y = z.vertical.window_at(h, r, z.y);
          if (y < 0) continue;
          const double* src = &in[0].f[size_t(((n * z.k + k) * z.y + y) * z.x)];
          for (int64_t s = 0; s < z.s; ++s)
            for (int64_t x = 0; x < z.x; ++x)
              if (const int64_t w = z.horizontal.at(x, s); z.horizontal.inside(w))
                add_scaled(cg, src[x], &weight[size_t(((k * z.r + r) * z.s + s) * cg)],
                           &row[size_t(w * z.c + k / kg * cg)]);
        }
      for (int64_t c = 0; c < z.c; ++c)
        for (int64_t w = 0; w < z.w; ++w)
          out[0].f[size_t(((n * z.c + c) * z.h + h) * z.w + w)] = row[size_t(w * z.c + c)];
    }
  });
}

void conv_grad_weight_reference(const ConvGradWeightParams& p, RefIn in, RefOut out) {
  const ConvSizes z = sizes(p, in[0].shape(), out[0].shape());
  const int64_t cg = z.c / z.groups, kg = z.k / z.groups;
  const std::vector<double> dy = swap_inner(in[1].f, z.n, z.k, z.y * z.x);  // [n, y, x, k]
  parallel_for(z.c * z.r * z.s, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> sums(static_cast<size_t>(kg));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t c = task / (z.r * z.s), r = task / z.s % z.r, s = task % z.s;
      std::fill(sums.begin(), sums.end(), 0);
      for (int64_t n = 0; n < z.n; ++n)
        for (int64_t y = 0; y < z.y; ++y) {
          const int64_t h = z.vertical.at(y, r);
          if (!z.vertical.inside(h)) continue;
          const double* src = &in[0].f[size_t(((n * z.c + c) * z.h + h) * z.w)];
          for (int64_t x = 0; x < z.x; ++x)
            if (const int64_t w = z.horizontal.at(x, s); z.horizontal.inside(w))
              add_scaled(kg, src[w], &dy[size_t(((n * z.y + y) * z.x + x) * z.k + c / cg * kg)],
                         sums.data());
        }
      for (int64_t k = 0; k < kg; ++k)
        out[0].f[size_t((((c / cg * kg + k) * cg + c % cg) * z.r + r) * z.s + s)] = sums[size_t(k)];
    }
  });
}

// With groups, a slice of the channels would be another number of groups: they stay whole.
std::string conv_factors(const ConvParams& p, bool bias) {
  if (p.groups > 1)
    return std::string("n c! h! w!, k! d! r! s!") + (bias ? ", k!" : "") + " -> n k! y! x!";
  // With a bias, c stays whole: partial sums would each add it.
  return bias ? "n c! h! w!, k c! r! s!, k -> n k y! x!" : "n c h! w!, k c r! s! -> n k y! x!";
}

OnnxWindow onnx_window_of(const ConvParams& p, const Shape& weight) {
  return {{weight[2], weight[3]}, p.stride, p.pad_before, p.pad_after, p.dilation};
}
ConvParams params_of(const OnnxWindow& w, int64_t groups) {
  return {w.stride, w.pad_before, w.pad_after, w.dilation, groups};
}

}  // namespace

extern const OpDef conv_op = define(OpSpec<ConvParams>{
    .name = "conv",
    .inputs = {{"x", any_float},
               {"weight", any_float},
               {.name = "bias", .dtypes = any_float, .optional = true}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          return TypeList{{in[0].dtype, conv_sizes(p, in).output()}};
        },
    .factors = [](auto& p, Types in) { return conv_factors(p, in.size() > 2); },
    .reference = conv_reference,
    .saves = {input(0), input(1)},
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          const Shape &x = s.input_type(0).shape, &weight = s.input_type(1).shape;
          Grads g(size_t(s.input_count()));
          if (s.needs(0))
            g[0] = apply1(conv_grad_input_op, {dy[0], s.input(1)},
                          ConvGradInputParams{p, {x[2], x[3]}});
          if (s.needs(1))
            g[1] = apply1(conv_grad_weight_op, {s.input(0), dy[0]},
                          ConvGradWeightParams{p, {weight[2], weight[3]}});
          if (g.size() > 2 && s.needs(2)) g[2] = sum(dy[0], {0, 2, 3});
          return g;
        },
    .cost =
        [](auto& p, Types in, Types out) {
          return Cost{conv_sizes(p, in).flops() + (in.size() > 2 ? double(out[0].numel()) : 0),
                      traffic(in, out)};
        },
    .fusion = opaque(
        "its inner loops are a kernel's own; bias, norm and activation join it as fused operators"),
    .onnx =
        OnnxMapping<ConvParams>{
            "Conv", 11,
            [](auto& p, Types in) {
              OnnxCall call{onnx_window(onnx_window_of(p, in[1].shape)), {}};
              call.attributes.push_back({"group", p.groups});
              return call;
            },
            [](const OnnxCall& c, Types in) -> std::optional<ConvParams> {
              if (in[1].shape.rank() != 4) return std::nullopt;
              const auto w = read_onnx_window(c, in[0].shape, {in[1].shape[2], in[1].shape[3]});
              if (!w) return std::nullopt;
              return params_of(*w, c.integer("group", 1));
            }},
    .samples = {{{f32({2, 3, 5, 6}), f32({4, 3, 3, 3}), f32({4})},
                 {.pad_before = {1, 1}, .pad_after = {1, 1}}},
                {{f32({1, 4, 7, 8}), f32({6, 2, 3, 2})},
                 {.stride = {2, 1},
                  .pad_before = {0, 1},
                  .pad_after = {2, 1},
                  .dilation = {1, 2},
                  .groups = 2}},
                {{f32({2, 5, 3, 3}), f32({3, 5, 1, 1})}},
                {{f32({2, 4, 5, 5}), f32({4, 1, 3, 3}), f32({4})},
                 {.stride = {2, 2}, .pad_before = {1, 1}, .pad_after = {1, 1}, .groups = 4}},
                {{f32({2, 8, 8, 8}), f32({8, 8, 3, 3})},
                 {.pad_before = {1, 1}, .pad_after = {1, 1}}},
                {{f32({0, 3, 4, 4}), f32({2, 3, 3, 3})}}},
});

extern const OpDef conv_grad_input_op = define(OpSpec<ConvGradInputParams>{
    .name = "conv_grad_input",
    .inputs = {{"dy", any_float}, {"weight", any_float}},
    .outputs = {{"dx"}},
    .infer =
        [](auto& p, Types in) {
          return TypeList{{in[0].dtype, conv_grad_input_sizes(p, in).input()}};
        },
    .factors =
        [](auto& p, Types) {
          return p.groups > 1 ? "n k! y! x!, k! d! r! s! -> n c! h! w!"
                              : "n k y! x!, k c r! s! -> n c h! w!";
        },
    .reference = conv_grad_input_reference,
    .saves = {input(0), input(1)},
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> ddx) {
          const Shape& weight = s.input_type(1).shape;
          Grads g(2);
          if (s.needs(0)) g[0] = apply1(conv_op, {ddx[0], s.input(1)}, ConvParams(p));
          if (s.needs(1))
            g[1] = apply1(conv_grad_weight_op, {ddx[0], s.input(0)},
                          ConvGradWeightParams{p, {weight[2], weight[3]}});
          return g;
        },
    .cost =
        [](auto& p, Types in, Types out) {
          return Cost{conv_grad_input_sizes(p, in).flops(), traffic(in, out)};
        },
    .fusion = opaque("its inner loops are a kernel's own"),
    .onnx =
        OnnxMapping<ConvGradInputParams>{
            "ConvTranspose", 11,
            [](auto& p, Types in) {
              const ConvSizes z = conv_grad_input_sizes(p, in);
              const auto rest = [](const WindowAxis& a, int64_t windows) {
                return a.length + a.before + a.after - a.extent() - (windows - 1) * a.stride;
              };
              OnnxCall call{onnx_window(onnx_window_of(p, in[1].shape)), {}};
              call.attributes.push_back({"group", p.groups});
              call.attributes.push_back(
                  {"output_padding",
                   std::vector<int64_t>{rest(z.vertical, z.y), rest(z.horizontal, z.x)}});
              return call;
            },
            [](const OnnxCall& c, Types in) -> std::optional<ConvGradInputParams> {
              const Shape &dy = in[0].shape, &weight = in[1].shape;
              const auto more = c.integers("output_padding", {0, 0});
              if (in.size() != 2 || weight.rank() != 4 || more.size() != 2 ||
                  c.find("output_shape") || c.text("auto_pad", "NOTSET") != "NOTSET")
                return std::nullopt;
              const auto w = read_onnx_window(c, dy, {weight[2], weight[3]});
              if (!w) return std::nullopt;
              ConvGradInputParams p{params_of(*w, c.integer("group", 1)), {0, 0}};
              expect_conv_params(p);
              for (int i = 0; i < 2; ++i)
                p.size[i] = (dy[i + 2] - 1) * p.stride[i] + more[size_t(i)] +
                            p.dilation[i] * (weight[i + 2] - 1) + 1 - p.pad_before[i] -
                            p.pad_after[i];
              return p;
            }},
    .samples = {{{f32({2, 4, 5, 6}), f32({4, 3, 3, 3})},
                 {{.pad_before = {1, 1}, .pad_after = {1, 1}}, {5, 6}}},
                {{f32({1, 6, 4, 8}), f32({6, 2, 3, 2})},
                 {{.stride = {2, 1},
                   .pad_before = {0, 1},
                   .pad_after = {2, 1},
                   .dilation = {1, 2},
                   .groups = 2},
                  {7, 8}}},
                {{f32({2, 4, 3, 3}), f32({4, 1, 3, 3})},
                 {{.stride = {2, 2}, .pad_before = {1, 1}, .pad_after = {1, 1}, .groups = 4},
                  {6, 5}}},
                {{f32({2, 8, 8, 8}), f32({8, 8, 3, 3})},
                 {{.pad_before = {1, 1}, .pad_after = {1, 1}}, {8, 8}}},
                {{f32({0, 2, 2, 2}), f32({2, 3, 3, 3})}, {{}, {4, 4}}}},
});

extern const OpDef conv_grad_weight_op = define(OpSpec<ConvGradWeightParams>{
    .name = "conv_grad_weight",
    .inputs = {{"x", any_float}, {"dy", any_float}},
    .outputs = {{"dweight"}},
    .infer =
        [](auto& p, Types in) {
          return TypeList{{in[0].dtype, conv_grad_weight_sizes(p, in).weight()}};
        },
    .factors =
        [](auto& p, Types) {
          return p.groups > 1 ? "n c! h! w!, n k! y! x! -> k! d! r! s!"
                              : "n c h! w!, n k y! x! -> k c r! s!";
        },
    .reference = conv_grad_weight_reference,
    .saves = {input(0), input(1)},
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> ddw) {
          const Shape& x = s.input_type(0).shape;
          Grads g(2);
          if (s.needs(0))
            g[0] = apply1(conv_grad_input_op, {s.input(1), ddw[0]},
                          ConvGradInputParams{p, {x[2], x[3]}});
          if (s.needs(1)) g[1] = apply1(conv_op, {s.input(0), ddw[0]}, ConvParams(p));
          return g;
        },
    .cost =
        [](auto& p, Types in, Types out) {
          return Cost{conv_grad_weight_sizes(p, in).flops(), traffic(in, out)};
        },
    .fusion = opaque("its inner loops are a kernel's own"),
    .onnx = no_onnx("only training needs it"),
    .samples = {{{f32({2, 3, 5, 6}), f32({2, 4, 5, 6})},
                 {{.pad_before = {1, 1}, .pad_after = {1, 1}}, {3, 3}}},
                {{f32({1, 4, 7, 8}), f32({1, 6, 4, 8})},
                 {{.stride = {2, 1},
                   .pad_before = {0, 1},
                   .pad_after = {2, 1},
                   .dilation = {1, 2},
                   .groups = 2},
                  {3, 2}}},
                {{f32({2, 5, 3, 3}), f32({2, 3, 3, 3})}, {{}, {1, 1}}},
                {{f32({2, 4, 6, 5}), f32({2, 4, 3, 3})},
                 {{.stride = {2, 2}, .pad_before = {1, 1}, .pad_after = {1, 1}, .groups = 4},
                  {3, 3}}},
                {{f32({2, 8, 8, 8}), f32({2, 8, 8, 8})},
                 {{.pad_before = {1, 1}, .pad_after = {1, 1}}, {3, 3}}},
                {{f32({0, 3, 4, 4}), f32({0, 2, 2, 2})}, {{}, {3, 3}}}},
});

}  // namespace ops

Tensor conv2d(const Arg& x, const Arg& weight, const Tensor& bias, const ConvOptions& o) {
  std::vector<Tensor> in{x.tensor(), weight.tensor()};
  if (bias) in.push_back(bias);
  const Shape pad{o.pad_h, o.pad_w};
  return apply(
      ops::conv_op, in,
      ops::ConvParams{{o.stride_h, o.stride_w}, pad, pad, {o.dilation_h, o.dilation_w}, o.groups},
      x.site())[0];
}

}  // namespace cairn
