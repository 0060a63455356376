// SPDX-License-Identifier: Apache-2.0
// Average over a sliding window; its gradient gives each pixel its share of every window that reads
// it.
#include <algorithm>

#include "base/parallel.h"
#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"
#include "ops/nn/pool.h"

namespace cairn {
namespace ops {

PoolSizes avg_pool_sizes(const AvgPoolParams& p, const TensorType& x) {
  return max_pool_sizes({p.kernel, p.stride, p.pad_before, p.pad_after, {1, 1}, p.ceil_mode}, x);
}

PoolSizes avg_pool_grad_sizes(const AvgPoolGradParams& p, const TensorType& dy) {
  expect_picture("dy", dy);
  expect_pair("size", p.size, 0);
  const PoolSizes z =
      avg_pool_sizes(p, {dy.dtype, {dy.shape[0], dy.shape[1], p.size[0], p.size[1]}});
  expect_shape("dy", dy, z.output(), "as avg_pool gives for this size");
  return z;
}

int64_t avg_pool_count(const WindowAxis& axis, int64_t i, bool count_padding) {
  const int64_t first = axis.at(i, 0), last = first + axis.kernel;
  return count_padding ? std::min(last, axis.length + axis.after) - first
                       : std::min(last, axis.length) - std::max<int64_t>(first, 0);
}

namespace {

double divisor(const AvgPoolParams& p, const PoolSizes& z, int64_t window) {
  return double(avg_pool_count(z.vertical, window / z.x, p.count_padding)) *
         double(avg_pool_count(z.horizontal, window % z.x, p.count_padding));
}

// Calls body(window, pixel) for each pixel that each window of a plane reads, both flat.
template <class Body>
void for_each_tap(const PoolSizes& z, Body&& body) {
  for (int64_t y = 0; y < z.y; ++y)
    for (int64_t x = 0; x < z.x; ++x)
      for (int64_t r = 0; r < z.vertical.kernel; ++r)
        for (int64_t s = 0; s < z.horizontal.kernel; ++s) {
          const int64_t h = z.vertical.at(y, r), w = z.horizontal.at(x, s);
          if (z.vertical.inside(h) && z.horizontal.inside(w)) body(y * z.x + x, h * z.w + w);
        }
}

}  // namespace

extern const OpDef avg_pool_op = define(OpSpec<AvgPoolParams>{
    .name = "avg_pool",
    .inputs = {{"x", any_float}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          return TypeList{{in[0].dtype, avg_pool_sizes(p, in[0]).output()}};
        },
    .factors = [](auto&, Types) { return "n c h! w! -> n c y! x!"; },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const PoolSizes z = avg_pool_sizes(p, in[0].type);
          parallel_for(z.n * z.c, 1, [&](int64_t begin, int64_t end) {
            for (int64_t plane = begin; plane < end; ++plane) {
              const double* x = in[0].f.data() + plane * z.h * z.w;
              double* y = out[0].f.data() + plane * z.y * z.x;
              for_each_tap(z, [&](int64_t window, int64_t pixel) { y[window] += x[pixel]; });
              for (int64_t window = 0; window < z.y * z.x; ++window)
                y[window] /= divisor(p, z, window);
            }
          });
        },
    .saves = none("linear"),
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          const Shape& x = s.input_type(0).shape;
          return grads(apply1(avg_pool_grad_op, {dy[0]}, AvgPoolGradParams{p, {x[2], x[3]}}));
        },
    .cost =
        [](auto& p, Types in, Types out) {
          return Cost{avg_pool_sizes(p, in[0]).taps(), traffic(in, out)};
        },
    .fusion = opaque("reads a window for each element"),
    .onnx =
        OnnxMapping<AvgPoolParams>{
            "AveragePool", 11,
            [](auto& p, Types) {
              OnnxCall call{onnx_window({p.kernel, p.stride, p.pad_before, p.pad_after, {}}), {}};
              call.attributes.push_back({"ceil_mode", int64_t(p.ceil_mode)});
              call.attributes.push_back({"count_include_pad", int64_t(p.count_padding)});
              return call;
            },
            [](const OnnxCall& c, Types in) -> std::optional<AvgPoolParams> {
              const auto w = read_onnx_window(c, in[0].shape);
              if (!w || w->dilation != Shape{1, 1}) return std::nullopt;
              return AvgPoolParams{w->kernel,
                                   w->stride,
                                   w->pad_before,
                                   w->pad_after,
                                   c.integer("ceil_mode", 0) != 0,
                                   c.integer("count_include_pad", 0) != 0};
            }},
    .samples = {{{f32({2, 3, 4, 6})}},
                {{f32({1, 2, 5, 6})},
                 {.kernel = {3, 2}, .stride = {2, 1}, .pad_before = {1, 0}, .pad_after = {1, 1}}},
                {{f32({1, 2, 5, 6})},
                 {.kernel = {3, 3},
                  .pad_before = {1, 1},
                  .pad_after = {1, 1},
                  .ceil_mode = true,
                  .count_padding = false}},
                {{f32({1, 1, 6, 4})},
                 {.kernel = {3, 3}, .pad_before = {1, 1}, .pad_after = {1, 1}, .ceil_mode = true}},
                {{f32({0, 2, 4, 4})}}},
});

extern const OpDef avg_pool_grad_op = define(OpSpec<AvgPoolGradParams>{
    .name = "avg_pool_grad",
    .inputs = {{"dy", any_float}},
    .outputs = {{"dx"}},
    .infer =
        [](auto& p, Types in) {
          return TypeList{{in[0].dtype, avg_pool_grad_sizes(p, in[0]).input()}};
        },
    .factors = [](auto&, Types) { return "n c y! x! -> n c h! w!"; },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const PoolSizes z = avg_pool_grad_sizes(p, in[0].type);
          parallel_for(z.n * z.c, 1, [&](int64_t begin, int64_t end) {
            for (int64_t plane = begin; plane < end; ++plane) {
              const double* dy = in[0].f.data() + plane * z.y * z.x;
              double* dx = out[0].f.data() + plane * z.h * z.w;
              for_each_tap(z, [&](int64_t window, int64_t pixel) {
                dx[pixel] += dy[window] / divisor(p, z, window);
              });
            }
          });
        },
    .saves = none("linear"),
    .gradient =
        [](auto& p, const Saved&, std::span<const Tensor> ddx) {
          return grads(apply1(avg_pool_op, {ddx[0]}, AvgPoolParams(p)));
        },
    .cost =
        [](auto& p, Types in, Types out) {
          return Cost{avg_pool_grad_sizes(p, in[0]).taps(), traffic(in, out)};
        },
    .fusion = opaque("adds windows that overlap"),
    .onnx = no_onnx("only training needs it"),
    .samples = {{{f32({2, 3, 2, 3})}, {{}, {5, 6}}},
                {{f32({1, 2, 3, 6})},
                 {{.kernel = {3, 2}, .stride = {2, 1}, .pad_before = {1, 0}, .pad_after = {1, 1}},
                  {5, 6}}},
                {{f32({1, 2, 3, 4})},
                 {{.kernel = {3, 3},
                   .pad_before = {1, 1},
                   .pad_after = {1, 1},
                   .ceil_mode = true,
                   .count_padding = false},
                  {5, 6}}},
                {{f32({0, 2, 2, 2})}, {{}, {4, 4}}}},
});

}  // namespace ops

Tensor avg_pool2d(const Arg& x, const PoolOptions& o) {
  const Shape pad{o.pad_h, o.pad_w};
  return apply1(ops::avg_pool_op, {x.tensor()},
                ops::AvgPoolParams{{o.kernel_h, o.kernel_w},
                                   {o.stride_h, o.stride_w},
                                   pad,
                                   pad,
                                   o.ceil_mode,
                                   o.count_padding},
                x.site());
}

}  // namespace cairn
