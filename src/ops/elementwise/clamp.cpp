// SPDX-License-Identifier: Apache-2.0
// Clamp: x limited to [low, high]; NaN stays NaN.
#include <cmath>
#include <limits>

#include "core/strided.h"
#include "ops/catalog.h"
#include "ops/elementwise/unary.h"

namespace cairn {
namespace ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct ClampParams {
  double low = -kInfinity, high = kInfinity;
  static constexpr auto fields =
      describe(field("low", &ClampParams::low), field("high", &ClampParams::high));
};

// A bound as a scalar of `dtype`; nothing when the bound does not bind.
void bound(OnnxCall& call, int position, double value, DType dtype) {
  if (!std::isinf(value)) call.constants.emplace_back(position, scalar_of(value, dtype));
}

}  // namespace

extern const OpDef clamp_op = unary(Unary<ClampParams>{
    .name = "clamp",
    .real = [](auto& p, double x) { return x < p.low    ? p.low
                                           : x > p.high ? p.high
                                                        : x; },
    .integer =
        [](auto& p, int64_t x) {  // bounds rounded inwards
          const int64_t low = saturate<int64_t>(std::ceil(p.low)),
                        high = saturate<int64_t>(std::floor(p.high));
          return x < low ? low : x > high ? high : x;
        },
    .saves = {input(0)},
    .gradient = [](auto& p, auto& dy,
                   auto& x) { return select(logical_and(x >= p.low, x <= p.high), dy, 0); },
    .flops = 2,
    .onnx =
        OnnxMapping<ClampParams>{"Clip", 13,
                                 [](auto& p, Types in) {
                                   OnnxCall call;
                                   const bool real = is_float(in[0].dtype);  // else rounded inwards
                                   bound(call, 1, real ? p.low : std::ceil(p.low), in[0].dtype);
                                   bound(call, 2, real ? p.high : std::floor(p.high), in[0].dtype);
                                   return call;
                                 },
                                 [](const OnnxCall& c, Types) {
                                   ClampParams p;
                                   if (auto* low = c.constant(1)) p.low = low->item();
                                   if (auto* high = c.constant(2)) p.high = high->item();
                                   return std::optional(p);
                                 }},
    .params = {{.low = -0.7, .high = 1.1}, {.low = 0}, {.low = 0, .high = 6}},
});

}  // namespace ops

Tensor clamp(const Arg& x, double low, double high) {
  if (!(low <= high))
    fail(ErrorCode::invalid_argument,
         fmt::format("clamp: got low {} and high {}, expected low ≤ high", low, high));
  return apply1(ops::clamp_op, {x.tensor()}, ops::ClampParams{low, high}, x.site());
}

}  // namespace cairn
