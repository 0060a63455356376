// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/versions.h"

#include <dnnl_version.h>
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

namespace cairn::cpu {

std::vector<LibraryVersion> library_versions() {
  const dnnl_version_t* v = dnnl_version();
  return {{"oneDNN", fmt::format("{}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH),
           fmt::format("{}.{}.{}", v->major, v->minor, v->patch)}};
}

}  // namespace cairn::cpu
