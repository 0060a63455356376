// SPDX-License-Identifier: Apache-2.0
// The catalogue: one explicit line an operator (catalog.inc), so that no linker drops one.
#pragma once
#include <cairn/extend/op.h>

namespace cairn::ops {

#define CAIRN_OP(name) extern const OpDef name##_op;
#include "ops/catalog.inc"
#undef CAIRN_OP

}  // namespace cairn::ops
