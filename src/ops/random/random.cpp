// SPDX-License-Identifier: Apache-2.0
// Uniform and normal random numbers (Philox), keyed by seed, stream and step, one an element.
#include "ops/catalog.h"
#include "ops/context.h"
#include "ops/expect.h"
#include "ops/helpers.h"
#include "ops/random/draw.h"

namespace cairn {
namespace ops {
namespace {

struct RandomParams {
  int64_t stream = 0;
  Shape shape;
  double low = 0, high = 1;
  DType dtype = DType::f32;
  static constexpr auto fields =
      describe(field("stream", &RandomParams::stream), field("shape", &RandomParams::shape),
               field("low", &RandomParams::low), field("high", &RandomParams::high),
               field("dtype", &RandomParams::dtype));
};

struct NormalParams {
  int64_t stream = 0;
  Shape shape;
  double mean = 0, deviation = 1;
  DType dtype = DType::f32;
  static constexpr auto fields =
      describe(field("stream", &NormalParams::stream), field("shape", &NormalParams::shape),
               field("mean", &NormalParams::mean), field("deviation", &NormalParams::deviation),
               field("dtype", &NormalParams::dtype));
};

TypeList infer(const Shape& shape, DType dtype, Types in) {
  for (int i = 0; i < 2; ++i)
    if (in[size_t(i)].shape.rank() != 0)
      wrong_input(i ? "step" : "seed", in[size_t(i)], "a scalar");
  if (!is_float(dtype)) wrong_param("dtype", name(dtype), "a float dtype");
  for (int64_t length : shape)
    if (length < 0) wrong_param("shape", to_string(shape), "lengths of 0 or more");
  return {{dtype, shape}};
}

constexpr double kDrawFlops = 100;  // ten rounds of Philox a block

}  // namespace

extern const OpDef random_uniform_op = define(OpSpec<RandomParams>{
    .name = "random_uniform",
    .inputs = {{"seed", dtypes({DType::i64})}, {"step", dtypes({DType::i64})}},
    .outputs = {{"y"}},
    .infer = [](auto& p, Types in) { return infer(p.shape, p.dtype, in); },
    .factors = no_factors("a number depends on its place in the whole"),
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const Draw draw(in[0].i[0], p.stream, in[1].i[0]);
          for (int64_t k = 0; k < out[0].numel(); ++k)
            out[0].f[size_t(k)] =
                p.low + (p.high - p.low) * draw.uniform(k, uniform_digits(p.dtype));
        },
    .saves = none("no gradient"),
    .gradient = no_gradient("integer inputs"),
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, kDrawFlops / 4); },
    .fusion = opaque("draws by element index"),
    .onnx = no_onnx("ONNX leaves the numbers open"),
    .samples = {{{i64({}, 0, 9), i64({}, 0, 9)}, {.stream = 3, .shape = {4, 5}}},
                {{i64({}, 0, 9), i64({}, 0, 9)},
                 {.stream = 4, .shape = {7}, .low = -1, .high = 3, .dtype = DType::f64}},
                {{i64({}, 0, 9), i64({}, 0, 9)},
                 {.stream = 5, .shape = {0, 2}, .dtype = DType::f16}}},
});

extern const OpDef random_normal_op = define(OpSpec<NormalParams>{
    .name = "random_normal",
    .inputs = {{"seed", dtypes({DType::i64})}, {"step", dtypes({DType::i64})}},
    .outputs = {{"y"}},
    .infer = [](auto& p, Types in) { return infer(p.shape, p.dtype, in); },
    .factors = no_factors("a number depends on its place in the whole"),
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const Draw draw(in[0].i[0], p.stream, in[1].i[0]);
          for (int64_t k = 0; k < out[0].numel(); ++k)
            out[0].f[size_t(k)] = p.mean + p.deviation * draw.normal(k);
        },
    .saves = none("no gradient"),
    .gradient = no_gradient("integer inputs"),
    .cost = [](auto&, Types in,
               Types out) { return elementwise_cost(in, out, kDrawFlops / 2 + 30); },
    .fusion = opaque("draws by element index"),
    .onnx = no_onnx("ONNX leaves the numbers open"),
    .samples = {{{i64({}, 0, 9), i64({}, 0, 9)}, {.stream = 3, .shape = {4, 5}}},
                {{i64({}, 0, 9), i64({}, 0, 9)},
                 {.stream = 4, .shape = {7}, .mean = -1, .deviation = 3, .dtype = DType::f64}},
                {{i64({}, 0, 9), i64({}, 0, 9)}, {.stream = 5, .shape = {0, 2}}}},
});

}  // namespace ops

Tensor random_uniform(const Shape& shape, double low, double high, DType dtype) {
  const RandomKey key = next_random_key();
  return apply1(ops::random_uniform_op, {key.seed, key.step},
                ops::RandomParams{key.stream, shape, low, high, dtype});
}

Tensor random_normal(const Shape& shape, double mean, double deviation, DType dtype) {
  const RandomKey key = next_random_key();
  return apply1(ops::random_normal_op, {key.seed, key.step},
                ops::NormalParams{key.stream, shape, mean, deviation, dtype});
}

}  // namespace cairn
