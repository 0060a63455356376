// SPDX-License-Identifier: Apache-2.0
// run → timeline, hot operators: listens to what running code reports (base/profile.h) and tells it as a table
// or as a Chrome trace (chrome://tracing, Perfetto).
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "base/profile.h"

namespace cairn::inspect {

// Collects from construction to destruction. One at a time; any thread may report.
class Profile : public ProfileSink {
 public:
  Profile();
  ~Profile() override;
  void record(const ProfileEvent& event) override;

  // The dearest kinds of work: name, calls, time, share, GFLOP/s, GB/s. At most `rows`.
  std::string table(size_t rows = 20) const;
  // The whole timeline in the Trace Event Format ("traceEvents", complete events, microseconds).
  std::string chrome_trace() const;

 private:
  struct Event {
    std::string name, path;
    int64_t begin_ns, end_ns;
    double flops, bytes;
    int thread;
  };
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

}  // namespace cairn::inspect
