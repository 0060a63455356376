// SPDX-License-Identifier: Apache-2.0
// What the elementwise interpreter can do to a strip of elements: one function an operation and
// dtype, for the best instruction set of this machine.
#pragma once
#include <cairn/dtype.h>

#include <string_view>

namespace cairn::cpu {

// Strips hold a multiple of this many elements, so that no operation has a remainder.
inline constexpr int64_t kStripUnit = 64;

struct StripArgs {
  void* out;
  const void* in[4];
  double p[2];  // clamp: low, high; leaky_relu: slope; elu: alpha
};
// `out` may be the memory of an input, but must not overlap one otherwise.
using StripFn = void (*)(const StripArgs&, int64_t n);

enum class StripOp : uint8_t {
  none,
  copy,
  cast,
  select,
  add,
  sub,
  mul,
  div,
  pow,
  maximum,
  minimum,
  relu_grad,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  logical_and,
  logical_or,
  logical_not,
  neg,
  abs,
  sign,
  square,
  exp,
  log,
  sqrt,
  rsqrt,
  reciprocal,
  sin,
  cos,
  tanh,
  erf,
  floor,
  ceil,
  round,
  sigmoid,
  softplus,
  gelu,
  silu,
  silu_grad,
  hardsigmoid,
  hardswish,
  relu,
  leaky_relu,
  elu,
  clamp,
  // Two operations in one pass, each rounded as if it stood alone.
  mul_add,
  mul_sub,
  add_mul,
  sub_mul,  // of a, b, c: a b + c, a b − c, c + a b, c − a b
  select_equal,
  select_not_equal,
  select_less,
  select_less_equal,
  select_greater,
  select_greater_equal,  // (a, b) ? c : d
};
// The operation that an operator of this name is; none when there is no such.
StripOp strip_op(std::string_view op_name);

struct StripCode {
  StripFn fn;   // null: there is none
  int scalars;  // bit k: operand k is one element for the whole strip
  StripCode(StripFn f = nullptr, int s = 0) : fn(f), scalars(s) {}
};
// The function for operands of `in` (of select: a and b) and a result of `out`. It takes as scalars
// some of those that may be.
StripCode strip_code(StripOp op, DType in, DType out, int scalars);

}  // namespace cairn::cpu
