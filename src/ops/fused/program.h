// SPDX-License-Identifier: Apache-2.0
// The small program inside `fused_elementwise`: straight-line elementwise calls in SSA form.
//
// Text, as it stands in the operator's parameters: calls separated by ';', then the results:
//   "t0 = mul(i0, i1); t1 = add{}(t0, i2); t2 = clamp{low=0.0, high=6.0}(t1) -> t2, t0"
// iK is input K, tK the result of call K. Every call is an operator of fusion class `elementwise`.
#pragma once
#include <cairn/extend/op.h>

namespace cairn::ops {

struct FusedCall {
  const OpDef* op;
  Params params;
  std::vector<int> args;  // ≥ 0: result of that call; −1 − k: input k
  TensorType type;        // of its result (filled by infer_program)
};
struct FusedProgram {
  std::vector<FusedCall> calls;
  std::vector<int> results;  // as args
  std::string to_string() const;
};
FusedProgram parse_program(std::string_view text);    // throws parse
void infer_program(FusedProgram& program, Types in);  // fills types; throws as the operators do
TypeList program_output_types(const FusedProgram& program, Types in);

struct FusedElementwiseParams {
  std::string program;
  static constexpr auto fields = describe(field("program", &FusedElementwiseParams::program));
};

}  // namespace cairn::ops
