// SPDX-License-Identifier: Apache-2.0
#include "ops/fused/conv.h"

#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

// The inputs of the plain convolution.
Types conv_inputs(const FusedConvParams& p, Types in) {
  const size_t expected = 2 + p.bias + p.residual;
  if (in.size() != expected)
    fail(ErrorCode::invalid_argument,
         fmt::format("inputs: got {}, expected {} with bias={} and residual={}", in.size(),
                     expected, p.bias, p.residual));
  return in.first(2 + p.bias);
}

TypeList infer(const FusedConvParams& p, Types in) {
  const TensorType y{in[0].dtype, conv_sizes(p, conv_inputs(p, in)).output()};
  activation_of(p);
  if (p.residual && in.back() != y)
    wrong_input("residual", in.back(), to_string(y) + " as the convolution gives");
  return {y};
}

void reference(const FusedConvParams& p, RefIn in, RefOut out) {
  conv_op.reference(ConvParams(p), in.first(2 + p.bias), out);
  if (p.residual)
    for (size_t k = 0; k < out[0].f.size(); ++k) out[0].f[k] += in.back().f[k];
  if (const auto act = activation_of(p)) {
    const RefTensor before = out[0];
    act->op->reference(act->params, {&before, 1}, out);
  }
}

}  // namespace

std::optional<FusedCall> activation_of(const FusedConvParams& p) {
  if (p.activation == "none") return std::nullopt;
  FusedProgram program;
  try {
    program = parse_program(fmt::format("t0 = {}(i0) -> t0", p.activation));
  } catch (const Error&) {
  }
  if (program.calls.size() != 1 || program.calls[0].op->inputs.size() != 1)
    wrong_param("activation", p.activation,
                "an elementwise operator of one operand, e.g. relu, or none");
  return program.calls[0];
}

extern const OpDef fused_conv_op = define(OpSpec<FusedConvParams>{
    .name = "fused_conv",
    .inputs = {{"x", any_float},
               {"weight", any_float},
               {.name = "bias, residual", .dtypes = any_float, .variadic = true, .optional = true}},
    .outputs = {{"y"}},
    .infer = infer,
    .factors =
        [](auto& p, Types) {
          // The activation is not linear: input channels stay whole.
          std::string in = p.groups > 1 ? "n c! h! w!, k! d! r! s!" : "n c! h! w!, k c! r! s!";
          const std::string k = p.groups > 1 ? "k!" : "k", y = "n " + k + " y! x!";
          if (p.bias) in += ", " + k;
          if (p.residual) in += ", " + y;
          return in + " -> " + y;
        },
    .reference = reference,
    .saves = none("no gradient"),
    .gradient = no_gradient("for inference only"),
    .cost =
        [](auto& p, Types in, Types out) {
          const double steps = p.bias + p.residual + (p.activation != "none");
          return Cost{conv_sizes(p, in.first(2)).flops() + steps * double(out[0].numel()),
                      traffic(in, out)};
        },
    .fusion = opaque("fused already"),
    .onnx = no_onnx("exported before fusion"),
    .samples = {{{f32({2, 3, 5, 6}), f32({4, 3, 3, 3}), f32({4})},
                 {{.pad_before = {1, 1}, .pad_after = {1, 1}}, true, false, "relu"}},
                {{f32({1, 8, 4, 4}), f32({8, 8, 1, 1}), f32({8}), f32({1, 8, 4, 4})},
                 {{}, true, true, "relu"}},
                {{f32({2, 8, 4, 5}), f32({16, 4, 3, 3}), f32({2, 16, 2, 2})},
                 {{.stride = {2, 2}, .pad_before = {1, 1}, .groups = 2}, false, true, "none"}},
                {{f32({1, 16, 5, 5}), f32({16, 1, 3, 3}), f32({16})},
                 {{.pad_before = {1, 1}, .pad_after = {1, 1}, .groups = 16},
                  true,
                  false,
                  "clamp{low=0.0, high=6.0}"}},
                {{f32({2, 8, 8, 8}), f32({8, 8, 3, 3}), f32({8}), f32({2, 8, 8, 8})},
                 {{.pad_before = {1, 1}, .pad_after = {1, 1}}, true, true, "silu"}},
                {{f32({0, 3, 4, 4}), f32({2, 3, 3, 3})}, {{}, false, false, "silu"}}},
    .decompose =
        [](auto& p, std::span<const Tensor> in) {
          Tensor y = apply(conv_op, in.first(2 + p.bias), ConvParams(p))[0];
          if (p.residual) y = y + in.back();
          if (const auto act = activation_of(p)) y = apply1(*act->op, {y}, act->params);
          return std::vector{y};
        },
});

}  // namespace ops
}  // namespace cairn
