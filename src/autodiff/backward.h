// SPDX-License-Identifier: Apache-2.0
// loss → gradients: the tape behind cairn/autodiff.h. Comes in: calls seen by the tape. Goes out: one gradient
// a source, as calls on the interpreter beneath.
#pragma once
#include "ops/interpreter.h"
