// SPDX-License-Identifier: Apache-2.0
// Factor strings, parsed: which axes of an operator are one and the same dimension, which of these
// may be split, and how the results of the parts combine. What sharding and its costs derive from.
//
//   "m k, k n -> m n"   split m or n: the outputs lie side by side; split k: they add up
#pragma once
#include <cairn/extend/op.h>

namespace cairn::ops {

enum class Combine {
  sum,
  max,
  min,
  prod
};  // how partial results of a reduced factor become the whole

struct Factor {
  std::string name;
  bool whole = false;              // "name!": must not be split
  Combine combine = Combine::sum;  // matters for outputs that do not have the factor
  int64_t length = 0;
};

struct FactorRule {
  static constexpr int kOne = -1;  // "1": an axis of length one that broadcasts
  std::vector<Factor> factors;
  std::vector<std::vector<int>> inputs,
      outputs;  // for each operand and axis: index into factors, or kOne

  // The axis of an operand that has the factor; −1: none.
  static int axis_of(const std::vector<int>& operand, int factor);
};

// Reads the grammar of OpSpec::factors against the types of the call. Throws `internal`, quoting
// the text, when it does not fit them: another number of operands or axes, a splittable name with
// two lengths or twice in one operand, "1" on a longer axis, an output axis whose splittable name
// no input has.
FactorRule parse_factors(std::string_view text, Types in, Types out);

}  // namespace cairn::ops
