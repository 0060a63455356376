// SPDX-License-Identifier: Apache-2.0
// Kernels of operators that only move elements.
#pragma once
#include <vector>

#include "runtime/backend.h"

namespace cairn::cpu {

// A kernel for each operator that is a view of its input, for where the view itself will not do.
std::vector<const Kernel*> view_kernels();

// A parameter by name, of an operator whose parameters only its definition knows.
template <class T>
T parameter(const Params& params, std::string_view name) {
  for (const auto& [key, value] : params.values())
    if (key == name) return std::get<T>(value);
  CAIRN_CHECK(false, "an operator lacks parameter " + std::string(name));
}

}  // namespace cairn::cpu
