// SPDX-License-Identifier: Apache-2.0
// Two-operand elementwise operators: what differs between them is a formula and its derivative.
#pragma once
#include "ops/helpers.h"

namespace cairn::ops {

struct Binary {
  std::string name;
  DTypeSet dtypes = any_number;
  double (*real)(double, double) = nullptr;
  int64_t (*integer)(int64_t, int64_t) = nullptr;  // in 64-bit wrapping arithmetic
  std::optional<DType> result = {};                // else the dtype of the operands
  Listed<SavedRef> saves;
  Facet<Grads(const NoParams&, const Saved&, std::span<const Tensor> dy)> gradient;
  double flops = 1;  // an element
  OnnxFacet<NoParams> onnx;
  double low = -2, high = 2;  // range of the first operand in the samples
  std::function<Tensor(const Tensor&, const Tensor&)> decompose = {};
};

OpDef binary(Binary b, const char* file = __builtin_FILE());

// The call with two tensors of one dtype; numbers follow the other side.
Tensor call_binary(const OpDef& op, const Arg& a, const Arg& b);

}  // namespace cairn::ops
