// SPDX-License-Identifier: Apache-2.0
// The table of one-operand elementwise operators without parameters.
#include "ops/elementwise/unary.h"

#include <cmath>
#include <numbers>

#include "ops/catalog.h"

namespace cairn {
namespace ops {
namespace {

using U = Unary<NoParams>;

int64_t wrapping_neg(int64_t x) { return int64_t(-uint64_t(x)); }
// Φ, the distribution function of the standard normal.
Tensor normal_cdf(const Tensor& x) { return 0.5 * (1 + erf(x * std::numbers::sqrt2 / 2)); }

// Of steps, which are constant but for jumps.
Tensor nothing_flows(const NoParams&, const Tensor&, const Tensor&) { return {}; }

}  // namespace

extern const OpDef neg_op = unary(U{
    .name = "neg",
    .real = [](auto&, double x) { return -x; },
    .integer = [](auto&, int64_t x) { return wrapping_neg(x); },
    .saves = none("linear"),
    .gradient = [](auto&, auto& dy, auto&) { return -dy; },
    .onnx = onnx_plain("Neg", 13),
});

extern const OpDef abs_op = unary(U{
    .name = "abs",
    .real = [](auto&, double x) { return std::fabs(x); },
    .integer = [](auto&, int64_t x) { return x < 0 ? wrapping_neg(x) : x; },
    .saves = {input(0)},
    .gradient = [](auto&, auto& dy, auto& x) { return dy * sign(x); },
    .onnx = onnx_plain("Abs", 13),
});

extern const OpDef sign_op = unary(U{
    .name = "sign",  // NaN stays NaN
    .real = [](auto&, double x) { return x > 0   ? 1.0
                                         : x < 0 ? -1.0
                                                 : x; },
    .integer = [](auto&, int64_t x) { return int64_t(x > 0) - int64_t(x < 0); },
    .saves = none("nothing flows back"),
    .gradient = nothing_flows,
    .onnx = onnx_plain("Sign", 13),
});

extern const OpDef square_op = unary(U{
    .name = "square",
    .real = [](auto&, double x) { return x * x; },
    .integer = [](auto&, int64_t x) { return int64_t(uint64_t(x) * uint64_t(x)); },
    .saves = {input(0)},
    .gradient = [](auto&, auto& dy, auto& x) { return dy * (2 * x); },
    .onnx = no_onnx("written as x · x"),
    .decompose = [](auto&, auto& x) { return x * x; },
});

extern const OpDef exp_op = unary(U{
    .name = "exp",
    .real = [](auto&, double x) { return std::exp(x); },
    .saves = {output(0)},
    .gradient = [](auto&, auto& dy, auto& y) { return dy * y; },
    .flops = kTranscendental,
    .onnx = onnx_plain("Exp", 13),
});

extern const OpDef log_op = unary(U{
    .name = "log",
    .real = [](auto&, double x) { return std::log(x); },
    .saves = {input(0)},
    .gradient = [](auto&, auto& dy, auto& x) { return dy / x; },
    .flops = kTranscendental,
    .onnx = onnx_plain("Log", 13),
    .low = 0.1,
});

extern const OpDef sqrt_op = unary(U{
    .name = "sqrt",
    .real = [](auto&, double x) { return std::sqrt(x); },
    .saves = {output(0)},
    .gradient = [](auto&, auto& dy, auto& y) { return 0.5 * dy / y; },
    .onnx = onnx_plain("Sqrt", 13),
    .low = 0.1,
});

extern const OpDef rsqrt_op = unary(U{
    .name = "rsqrt",
    .real = [](auto&, double x) { return 1 / std::sqrt(x); },
    .saves = {output(0)},
    .gradient = [](auto&, auto& dy, auto& y) { return -0.5 * dy * (y * square(y)); },
    .flops = 2,
    .onnx = no_onnx("written as 1 / sqrt(x)"),
    .low = 0.2,
    .decompose = [](auto&, auto& x) { return reciprocal(sqrt(x)); },
});

extern const OpDef reciprocal_op = unary(U{
    .name = "reciprocal",
    .real = [](auto&, double x) { return 1 / x; },
    .saves = {output(0)},
    .gradient = [](auto&, auto& dy, auto& y) { return -dy * square(y); },
    .onnx = onnx_plain("Reciprocal", 13),
    .low = 0.2,
});

extern const OpDef sin_op = unary(U{
    .name = "sin",
    .real = [](auto&, double x) { return std::sin(x); },
    .saves = {input(0)},
    .gradient = [](auto&, auto& dy, auto& x) { return dy * cos(x); },
    .flops = kTranscendental,
    .onnx = onnx_plain("Sin", 7),
});

extern const OpDef cos_op = unary(U{
    .name = "cos",
    .real = [](auto&, double x) { return std::cos(x); },
    .saves = {input(0)},
    .gradient = [](auto&, auto& dy, auto& x) { return -dy * sin(x); },
    .flops = kTranscendental,
    .onnx = onnx_plain("Cos", 7),
});

extern const OpDef tanh_op = unary(U{
    .name = "tanh",
    .real = [](auto&, double x) { return std::tanh(x); },
    .saves = {output(0)},
    .gradient = [](auto&, auto& dy, auto& y) { return dy * (1 - square(y)); },
    .flops = kTranscendental,
    .onnx = onnx_plain("Tanh", 13),
});

extern const OpDef erf_op = unary(U{
    .name = "erf",
    .real = [](auto&, double x) { return std::erf(x); },
    .saves = {input(0)},
    .gradient = [](auto&, auto& dy,
                   auto& x) { return dy * (2 * std::numbers::inv_sqrtpi * exp(-square(x))); },
    .flops = kTranscendental,
    .onnx = onnx_plain("Erf", 13),
});

extern const OpDef floor_op = unary(U{
    .name = "floor",
    .real = [](auto&, double x) { return std::floor(x); },
    .saves = none("nothing flows back"),
    .gradient = nothing_flows,
    .onnx = onnx_plain("Floor", 13),
});

extern const OpDef ceil_op = unary(U{
    .name = "ceil",
    .real = [](auto&, double x) { return std::ceil(x); },
    .saves = none("nothing flows back"),
    .gradient = nothing_flows,
    .onnx = onnx_plain("Ceil", 13),
});

extern const OpDef round_op = unary(U{
    .name = "round",
    .real = [](auto&, double x) { return std::nearbyint(x); },  // the default mode: halves to even
    .saves = none("nothing flows back"),
    .gradient = nothing_flows,
    .onnx = onnx_plain("Round", 11),
});

extern const OpDef sigmoid_op = unary(U{
    .name = "sigmoid",
    .real = [](auto&, double x) { return logistic(x); },
    .saves = {output(0)},
    .gradient = [](auto&, auto& dy, auto& y) { return dy * (y * (1 - y)); },
    .flops = kTranscendental,
    .onnx = onnx_plain("Sigmoid", 13),
});

extern const OpDef softplus_op = unary(U{
    .name = "softplus",
    .real = [](auto&, double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); },
    .saves = {input(0)},
    .gradient = [](auto&, auto& dy, auto& x) { return dy * sigmoid(x); },
    .flops = 2 * kTranscendental,
    .onnx = onnx_plain("Softplus", 1),
});

extern const OpDef gelu_op = unary(U{
    .name = "gelu",
    .real = [](auto&, double x) { return 0.5 * x * std::erfc(-x * std::numbers::sqrt2 / 2); },
    .saves = {input(0)},
    .gradient =
        [](auto&, auto& dy, auto& x) {
          const double density = std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2;
          return dy * (normal_cdf(x) + x * (density * exp(-0.5 * square(x))));
        },
    .flops = kTranscendental + 3,
    .onnx = no_onnx("Gelu came with opset 20; written with Erf"),
    .decompose = [](auto&, auto& x) { return x * normal_cdf(x); },
});

extern const OpDef hardsigmoid_op = unary(U{
    .name = "hardsigmoid",
    .real = [](auto&, double x) { return x <= -3  ? 0
                                         : x >= 3 ? 1
                                                  : x / 6 + 0.5; },
    .saves = {input(0)},
    .gradient = [](auto&, auto& dy, auto& x) { return select(abs(x) < 3, dy * (1.0 / 6), 0); },
    .flops = 4,
    .onnx = OnnxMapping<NoParams>{"HardSigmoid", 6,
                                  [](auto&, Types) {
                                    return OnnxCall{{{"alpha", 1.0 / 6}, {"beta", 0.5}}, {}};
                                  },
                                  [](const OnnxCall& c, Types) -> std::optional<NoParams> {
                                    if (std::fabs(c.number("alpha", 0.2) - 1.0 / 6) > 1e-6 ||
                                        c.number("beta", 0.5) != 0.5)
                                      return std::nullopt;
                                    return NoParams{};
                                  }},
    .low = -5,
    .high = 5,
    .decompose = [](auto&, auto& x) { return clamp(x * (1.0 / 6) + 0.5, 0, 1); },
});

extern const OpDef hardswish_op = unary(U{
    .name = "hardswish",
    .real = [](auto&, double x) { return x <= -3  ? 0
                                         : x >= 3 ? x
                                                  : x * (x / 6 + 0.5); },
    .saves = {input(0)},
    .gradient =
        [](auto&, auto& dy, auto& x) {
          return select(x >= 3, dy, select(x <= -3, 0, dy * (x * (1.0 / 3) + 0.5)));
        },
    .flops = 5,
    .onnx = onnx_plain("HardSwish", 14),
    .low = -5,
    .high = 5,
    .decompose = [](auto&, auto& x) { return x * hardsigmoid(x); },
});

}  // namespace ops

#define CAIRN_UNARY(name) \
  Tensor name(const Arg& x) { return apply1(ops::name##_op, {x.tensor()}, {}, x.site()); }
CAIRN_UNARY(neg)
CAIRN_UNARY(abs)
CAIRN_UNARY(sign)
CAIRN_UNARY(square)
CAIRN_UNARY(exp)
CAIRN_UNARY(log)
CAIRN_UNARY(sqrt)
CAIRN_UNARY(rsqrt)
CAIRN_UNARY(reciprocal)
CAIRN_UNARY(sin)
CAIRN_UNARY(cos)
CAIRN_UNARY(tanh)
CAIRN_UNARY(erf)
CAIRN_UNARY(floor)
CAIRN_UNARY(ceil)
CAIRN_UNARY(round)
CAIRN_UNARY(sigmoid)
CAIRN_UNARY(softplus)
CAIRN_UNARY(gelu)
CAIRN_UNARY(hardsigmoid)
CAIRN_UNARY(hardswish)
#undef CAIRN_UNARY

}  // namespace cairn
