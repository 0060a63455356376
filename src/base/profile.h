// SPDX-License-Identifier: Apache-2.0
// The hook through which running code reports what it did; `inspect` listens. Costs one load when nobody does.
#pragma once
#include <chrono>
#include <cstdint>
#include <string_view>

namespace cairn {

struct ProfileEvent {
  std::string_view name, path;  // "conv onednn.conv", module path
  int64_t begin_ns, end_ns;     // steady clock
  double flops, bytes;
};

class ProfileSink {
 public:
  virtual ~ProfileSink() = default;
  virtual void record(const ProfileEvent& event) = 0;  // from the thread that ran it
};

// One sink a process; null: off. The caller keeps it alive while it is set.
void set_profile_sink(ProfileSink* sink);
ProfileSink* profile_sink();

// Reports the scope it lives in.
class ProfileSpan {
 public:
  ProfileSpan(std::string_view name, std::string_view path = {}, double flops = 0, double bytes = 0)
      : sink_(profile_sink()), event_{name, path, sink_ ? now() : 0, 0, flops, bytes} {}
  ~ProfileSpan() {
    if (!sink_) return;
    event_.end_ns = now();
    sink_->record(event_);
  }
  ProfileSpan(const ProfileSpan&) = delete;
  ProfileSpan& operator=(const ProfileSpan&) = delete;

 private:
  static int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
  ProfileSink* sink_;
  ProfileEvent event_;
};

}  // namespace cairn
