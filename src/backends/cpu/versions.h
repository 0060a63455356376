// SPDX-License-Identifier: Apache-2.0
// Versions of the compute libraries: the one built with and the one running.
#pragma once
#include <string>
#include <vector>

namespace cairn::cpu {

struct LibraryVersion {
  std::string name, built, running;
};
std::vector<LibraryVersion> library_versions();

}  // namespace cairn::cpu
