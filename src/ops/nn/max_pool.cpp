// SPDX-License-Identifier: Apache-2.0
// Maximum over a sliding window, with the place of each maximum; its gradient sends dy back to that
// place.
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"
#include "ops/nn/pool.h"

namespace cairn {
namespace ops {

PoolSizes max_pool_sizes(const MaxPoolParams& p, const TensorType& x) {
  expect_picture("x", x);
  expect_pair("kernel", p.kernel, 1);
  expect_pair("stride", p.stride, 1);
  expect_pair("pad_before", p.pad_before, 0);
  expect_pair("pad_after", p.pad_after, 0);
  expect_pair("dilation", p.dilation, 1);
  const Shape& s = x.shape;
  PoolSizes z{s[0],
              s[1],
              s[2],
              s[3],
              0,
              0,
              {s[2], p.kernel[0], p.stride[0], p.pad_before[0], p.pad_after[0], p.dilation[0]},
              {s[3], p.kernel[1], p.stride[1], p.pad_before[1], p.pad_after[1], p.dilation[1]}};
  z.y = z.vertical.count(p.ceil_mode);
  z.x = z.horizontal.count(p.ceil_mode);
  if (!z.vertical.all_windows_read(z.y) || !z.horizontal.all_windows_read(z.x))
    wrong_input(
        "x", x,
        fmt::format("height and width of which each {} × {} window with padding {} and {} reads at "
                    "least one pixel",
                    p.kernel[0], p.kernel[1], to_string(p.pad_before), to_string(p.pad_after)));
  if (s[2] > std::numeric_limits<int32_t>::max() / s[3])
    wrong_input("x", x, "a plane of fewer than 2^31 pixels, as indices are i32");
  return z;
}

void wrong_place(int64_t place, int64_t pixels) {
  fail(ErrorCode::invalid_argument,
       fmt::format("max_pool_grad: input indices: got {}, expected 0 … {}", place, pixels - 1));
}

extern const OpDef max_pool_op = define(OpSpec<MaxPoolParams>{
    .name = "max_pool",
    .inputs = {{"x", any_float}},
    .outputs = {{"y"}, {"indices"}},
    .infer =
        [](auto& p, Types in) {
          const Shape y = max_pool_sizes(p, in[0]).output();
          return TypeList{{in[0].dtype, y}, {DType::i32, y}};
        },
    .factors = [](auto&, Types) { return "n c h! w! -> n c y! x!, n c y! x!"; },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const PoolSizes z = max_pool_sizes(p, in[0].type);
          parallel_for(z.n * z.c, 1, [&](int64_t begin, int64_t end) {
            for (int64_t plane = begin; plane < end; ++plane)
              for (int64_t y = 0; y < z.y; ++y)
                for (int64_t x = 0; x < z.x; ++x) {
                  const double* src = &in[0].f[size_t(plane * z.h * z.w)];
                  double best = 0;
                  int64_t place = -1;
                  for (int64_t r = 0; r < z.vertical.kernel; ++r)
                    for (int64_t s = 0; s < z.horizontal.kernel; ++s) {
                      const int64_t h = z.vertical.at(y, r), w = z.horizontal.at(x, s);
                      if (!z.vertical.inside(h) || !z.horizontal.inside(w)) continue;
                      const double value = src[h * z.w + w];
                      if (place < 0 || value > best || std::isnan(value))
                        best = value, place = h * z.w + w;
                    }
                  const auto k = size_t((plane * z.y + y) * z.x + x);
                  out[0].f[k] = best;
                  out[1].i[k] = place;
                }
          });
        },
    .saves = {output(1)},
    .gradient =
        [](auto&, const Saved& s, std::span<const Tensor> dy) {
          const Shape& x = s.input_type(0).shape;
          return grads(
              apply1(max_pool_grad_op, {dy[0], s.output(1)}, MaxPoolGradParams{{x[2], x[3]}}));
        },
    .cost =
        [](auto& p, Types in, Types out) {
          return Cost{max_pool_sizes(p, in[0]).taps(), traffic(in, out)};
        },
    .fusion = opaque("reads a window for each element"),
    .onnx =
        OnnxMapping<MaxPoolParams>{
            "MaxPool", 12,
            [](auto& p, Types) {
              OnnxCall call{
                  onnx_window({p.kernel, p.stride, p.pad_before, p.pad_after, p.dilation}), {}};
              call.attributes.push_back({"ceil_mode", int64_t(p.ceil_mode)});
              return call;
            },
            [](const OnnxCall& c, Types in) -> std::optional<MaxPoolParams> {
              const auto w = read_onnx_window(c, in[0].shape);
              if (!w || c.integer("storage_order", 0) != 0) return std::nullopt;
              return MaxPoolParams{w->kernel,    w->stride,   w->pad_before,
                                   w->pad_after, w->dilation, c.integer("ceil_mode", 0) != 0};
            }},
    .samples = {{{f32({2, 3, 4, 6})}},
                {{f32({2, 2, 7, 5})},
                 {.kernel = {3, 3}, .pad_before = {1, 1}, .pad_after = {1, 1}}},
                {{f32({1, 2, 6, 7})},
                 {.kernel = {3, 2},
                  .stride = {2, 1},
                  .pad_before = {1, 0},
                  .pad_after = {0, 1},
                  .dilation = {1, 2}}},
                {{f32({1, 2, 5, 6})}, {.kernel = {3, 3}, .ceil_mode = true}},
                {{f32({0, 2, 4, 4})}}},
});

extern const OpDef max_pool_grad_op = define(OpSpec<MaxPoolGradParams>{
    .name = "max_pool_grad",
    .inputs = {{"dy", any_float}, {"indices", dtypes({DType::i32})}},
    .outputs = {{"dx"}},
    .infer =
        [](auto& p, Types in) {
          expect_picture("dy", in[0]);
          expect_shape("indices", in[1], in[0].shape, "as dy");
          expect_pair("size", p.size, 0);
          return TypeList{{in[0].dtype, {in[0].shape[0], in[0].shape[1], p.size[0], p.size[1]}}};
        },
    .factors = [](auto&, Types) { return "n c y! x!, n c y! x! -> n c h! w!"; },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const Shape& s = in[0].shape();
          const int64_t windows = s[2] * s[3], pixels = p.size[0] * p.size[1];
          parallel_for(s[0] * s[1], 1, [&](int64_t begin, int64_t end) {
            for (int64_t plane = begin; plane < end; ++plane)
              for (int64_t k = plane * windows; k < (plane + 1) * windows; ++k) {
                const int64_t place = in[1].i[size_t(k)];
                if (place < 0 || place >= pixels) wrong_place(place, pixels);
                out[0].f[size_t(plane * pixels + place)] += in[0].f[size_t(k)];
              }
          });
        },
    .saves = {input(1)},
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> ddx) {
          const Shape& y = s.input_type(0).shape;
          const Tensor flat = reshape(ddx[0], {y[0], y[1], p.size[0] * p.size[1]});
          const Tensor places = reshape(s.input(1), {y[0], y[1], y[2] * y[3]});
          return grads(reshape(gather_elements(flat, places, 2), y), Tensor());
        },
    .cost =
        [](auto&, Types in, Types out) {
          return Cost{double(in[0].numel()), traffic(in, out)};
        },
    .fusion = opaque("scatters"),
    .onnx = no_onnx("only training needs it"),
    .samples = {{{f32({2, 3, 2, 3}), i32({2, 3, 2, 3}, 0, 24)}, {{4, 6}}},
                {{f32({1, 2, 3, 3}), i32({1, 2, 3, 3}, 0, 5)}, {{1, 5}}},
                {{f32({0, 2, 2, 2}), i32({0, 2, 2, 2}, 0, 4)}, {{2, 2}}}},
});

}  // namespace ops

Tensor max_pool2d(const Arg& x, const PoolOptions& o) {
  const Shape pad{o.pad_h, o.pad_w};
  return apply1(
      ops::max_pool_op, {x.tensor()},
      ops::MaxPoolParams{
          {o.kernel_h, o.kernel_w}, {o.stride_h, o.stride_w}, pad, pad, {1, 1}, o.ceil_mode},
      x.site());
}

}  // namespace cairn
