// SPDX-License-Identifier: Apache-2.0
#include "base/profile.h"

#include <atomic>

namespace cairn {
namespace {
std::atomic<ProfileSink*> current{nullptr};
}
void set_profile_sink(ProfileSink* sink) { current.store(sink, std::memory_order_release); }
ProfileSink* profile_sink() { return current.load(std::memory_order_acquire); }
}  // namespace cairn
