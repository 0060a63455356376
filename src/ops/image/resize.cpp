// SPDX-License-Identifier: Apache-2.0
// Resizing of pictures, nearest or bilinear (half-pixel centres, no antialias), and its gradient.
#include "ops/image/resize.h"

#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

Shape resized(const ResizeParams& p, std::string_view name, const TensorType& x) {
  expect_picture(name, x);
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (p.size.rank() != 2 || p.size[0] < 1 || p.size[1] < 1 || p.size[0] > most || p.size[1] > most)
    wrong_param("size", to_string(p.size), "[height, width], each at least 1");
  if (p.mode != "nearest" && p.mode != "bilinear")
    wrong_param("mode", p.mode, "nearest or bilinear");
  if (x.shape[2] < 1 || x.shape[3] < 1) wrong_input(name, x, "pictures of at least one pixel");
  return {x.shape[0], x.shape[1], p.size[0], p.size[1]};
}

// Calls body(output element, input element, weight) for all that each output element reads, plane
// by plane.
template <class Body>
void for_each_weight(bool bilinear, const Shape& in, const Shape& out, Body&& body) {
  std::vector<ResizeTap> across;
  for (int64_t x = 0; x < out[3]; ++x) across.push_back(resize_tap(bilinear, x, out[3], in[3]));
  parallel_for(in[0] * in[1], 1, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane)
      for (int64_t y = 0; y < out[2]; ++y) {
        const ResizeTap v = resize_tap(bilinear, y, out[2], in[2]);
        const int64_t low = (plane * in[2] + v.low) * in[3],
                      high = (plane * in[2] + v.high) * in[3];
        for (int64_t x = 0; x < out[3]; ++x) {
          const ResizeTap& h = across[size_t(x)];
          const auto to = size_t((plane * out[2] + y) * out[3] + x);
          body(to, size_t(low + h.low), (1 - v.weight) * (1 - h.weight));
          if (!bilinear) continue;
          body(to, size_t(low + h.high), (1 - v.weight) * h.weight);
          body(to, size_t(high + h.low), v.weight * (1 - h.weight));
          body(to, size_t(high + h.high), v.weight * h.weight);
        }
      }
  });
}

// The scale that ONNX floors back to `to`. Scales instead of sizes, because sizes would fix the
// batch.
float onnx_scale(int64_t from, int64_t to) {
  float scale = float(double(to) / double(from));
  while (double(scale) * double(from) < double(to)) scale = std::nextafter(scale, INFINITY);
  return scale;
}

// The result's height and width that an ONNX Resize asks for; nullopt when they are not constant.
std::optional<Shape> onnx_size(const OnnxCall& call, const Shape& x) {
  std::vector<double> all;
  if (const Tensor* sizes = call.constant(3); sizes && sizes->numel() > 0) {
    all = sizes->to_doubles();
  } else if (const Tensor* scales = call.constant(2); scales && scales->numel() > 0) {
    all = scales->to_doubles();
    for (size_t i = 0; i < all.size() && int(i) < x.rank(); ++i)
      all[i] = std::floor(all[i] * double(x[int(i)]));
  }
  constexpr double most = std::numeric_limits<int32_t>::max();
  if (x.rank() != 4 || all.size() != 4 || all[0] != double(x[0]) || all[1] != double(x[1]) ||
      !(all[2] >= 1 && all[2] <= most && all[3] >= 1 && all[3] <= most))
    return std::nullopt;
  return Shape{int64_t(all[2]), int64_t(all[3])};
}

std::optional<ResizeParams> read_onnx(const OnnxCall& call, Types in) {
  const Shape& x = in[0].shape;
  const auto size = onnx_size(call, x);
  if (!size) return std::nullopt;
  const std::string mode = call.text("mode", "nearest"),
                    rounding = call.text("nearest_mode", "round_prefer_floor");
  const std::string centres = call.text("coordinate_transformation_mode", "half_pixel");
  const bool by_whole_factor =
      (*size)[0] % x[2] == 0 && (*size)[1] % x[3] == 0;  // then all agree with floor
  if (mode == "linear" && (centres == "half_pixel" ||
                           (centres == "pytorch_half_pixel" && (*size)[0] > 1 && (*size)[1] > 1)))
    return ResizeParams{*size, "bilinear"};
  if (mode == "nearest" &&
      ((centres == "asymmetric" && rounding == "floor") ||
       (centres == "half_pixel" && rounding.starts_with("round_prefer") && by_whole_factor)))
    return ResizeParams{*size, "nearest"};
  return std::nullopt;
}

}  // namespace

extern const OpDef resize2d_op = define(OpSpec<ResizeParams>{
    .name = "resize2d",
    .inputs = {{"x", any_float}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          return TypeList{{in[0].dtype, resized(p, "x", in[0])}};
        },
    .factors = [](auto&, Types) { return "n c h! w! -> n c y! x!"; },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          for_each_weight(
              p.mode == "bilinear", in[0].shape(), out[0].shape(),
              [&](size_t y, size_t x, double weight) { out[0].f[y] += weight * in[0].f[x]; });
        },
    .saves = none("linear"),
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          const Shape& x = s.input_type(0).shape;
          return grads(apply1(resize2d_grad_op, {dy[0]}, ResizeParams{{x[2], x[3]}, p.mode}));
        },
    .cost = [](auto& p, Types in,
               Types out) { return elementwise_cost(in, out, p.mode == "bilinear" ? 8 : 0); },
    .fusion = opaque("reads other positions than it writes"),
    .onnx =
        OnnxMapping<ResizeParams>{
            "Resize", 13,
            [](auto& p, Types in) {
              const Shape& x = in[0].shape;
              const bool bilinear = p.mode == "bilinear";
              OnnxCall call;
              call.attributes = {
                  {"mode", bilinear ? "linear" : "nearest"},
                  {"coordinate_transformation_mode", bilinear ? "half_pixel" : "asymmetric"},
                  {"nearest_mode", "floor"}};
              call.constants = {
                  {2, Tensor::from<float>(
                          {1, 1, onnx_scale(x[2], p.size[0]), onnx_scale(x[3], p.size[1])}, {4})}};
              return call;
            },
            read_onnx},
    .samples = {{{f32({2, 3, 4, 5})}, {.size = {8, 10}}},
                {{f32({1, 2, 7, 5})}, {.size = {3, 9}}},
                {{f32({2, 2, 3, 4})}, {.size = {6, 8}, .mode = "nearest"}},
                {{f32({1, 2, 7, 5})}, {.size = {3, 9}, .mode = "nearest"}},
                {{f32({0, 2, 2, 2})}, {.size = {3, 3}}}},
});

extern const OpDef resize2d_grad_op = define(OpSpec<ResizeParams>{
    .name = "resize2d_grad",
    .inputs = {{"dy", any_float}},
    .outputs = {{"dx"}},
    .infer =
        [](auto& p, Types in) {
          return TypeList{{in[0].dtype, resized(p, "dy", in[0])}};
        },
    .factors = [](auto&, Types) { return "n c y! x! -> n c h! w!"; },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          for_each_weight(
              p.mode == "bilinear", out[0].shape(), in[0].shape(),
              [&](size_t y, size_t x, double weight) { out[0].f[x] += weight * in[0].f[y]; });
        },
    .saves = none("linear"),
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> ddx) {
          const Shape& dy = s.input_type(0).shape;
          return grads(apply1(resize2d_op, {ddx[0]}, ResizeParams{{dy[2], dy[3]}, p.mode}));
        },
    .cost =
        [](auto& p, Types in, Types out) {
          return Cost{(p.mode == "bilinear" ? 8.0 : 1.0) * double(in[0].numel()), traffic(in, out)};
        },
    .fusion = opaque("adds positions that overlap"),
    .onnx = no_onnx("only training needs it"),
    .samples = {{{f32({2, 3, 8, 10})}, {.size = {4, 5}}},
                {{f32({1, 2, 6, 8})}, {.size = {3, 4}, .mode = "nearest"}},
                {{f32({1, 2, 3, 9})}, {.size = {7, 5}}},
                {{f32({1, 2, 3, 9})}, {.size = {7, 5}, .mode = "nearest"}},
                {{f32({0, 2, 3, 3})}, {.size = {2, 2}}}},
});

}  // namespace ops

Tensor resize2d(const Arg& x, int64_t height, int64_t width, ResizeMode mode) {
  return apply1(
      ops::resize2d_op, {x.tensor()},
      ops::ResizeParams{{height, width}, mode == ResizeMode::bilinear ? "bilinear" : "nearest"},
      x.site());
}

}  // namespace cairn
