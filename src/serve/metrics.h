// SPDX-License-Identifier: Apache-2.0
// Counters of what the server did, in Prometheus' text form.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "serve/http.h"

namespace cairn::serve {

// All functions may be called from any thread.
class Metrics {
 public:
  // An inference request was answered with `status`, `took` after its last byte had come in.
  // `items` is its batch size, 0 when it failed.
  void inference(const std::string& model, const std::string& version, int status,
                 std::chrono::duration<double> took, int64_t items);

  // cairn_http_{connections,requests_in_flight,replies_total{code}}, cairn_infer_queue,
  // cairn_infer_{requests_total{model,version,code},items_total{model,version}},
  // cairn_infer_duration_seconds{model,version} (a histogram of the answers with code 200)
  std::string text(const HttpStats& http, size_t queued) const;

 private:
  static constexpr std::array kBounds{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                      0.1,    0.25,  0.5,    1.0,   2.5,  5.0,   10.0};
  struct PerModel {
    std::map<int, uint64_t> by_status;
    std::array<uint64_t, kBounds.size() + 1> buckets{};  // each by itself; text() adds them up
    double seconds = 0;
    uint64_t items = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, PerModel> models_;  // by name, version
};

}  // namespace cairn::serve
