// SPDX-License-Identifier: Apache-2.0
// Metrics in Prometheus' text exposition format 0.0.4.
#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace cairn::serve {
namespace {

std::string label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

void Metrics::inference(const std::string& model, const std::string& version, int status,
                        std::chrono::duration<double> took, int64_t items) {
  std::lock_guard lock(mutex_);
  PerModel& m = models_[{model, version}];
  ++m.by_status[status];
  if (status != 200) return;
  ++m.buckets[size_t(std::ranges::lower_bound(kBounds, took.count()) - kBounds.begin())];
  m.seconds += took.count();
  m.items += uint64_t(items);
}

std::string Metrics::text(const HttpStats& http, size_t queued) const {
  std::string out;
  const auto family = [&](std::string_view name, std::string_view type, std::string_view help) {
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  };
  family("cairn_http_connections", "gauge", "Open connections.");
  out += fmt::format("cairn_http_connections {}\n", http.connections);
  family("cairn_http_requests_in_flight", "gauge",
         "Requests between header and answer, this one included.");
  out += fmt::format("cairn_http_requests_in_flight {}\n", http.in_flight);
  family("cairn_http_replies_total", "counter", "Answers by status code.");
  for (const auto& [status, count] : http.replies)
    out += fmt::format("cairn_http_replies_total{{code=\"{}\"}} {}\n", status, count);
  family("cairn_infer_queue", "gauge", "Inference requests waiting for a worker.");
  out += fmt::format("cairn_infer_queue {}\n", queued);

  std::lock_guard lock(mutex_);
  const auto each = [&](auto&& write) {
    for (const auto& [key, m] : models_)
      write(fmt::format("model=\"{}\",version=\"{}\"", label(key.first), label(key.second)), m);
  };
  family("cairn_infer_requests_total", "counter",
         "Inference requests by status code; 499: the client hung up.");
  each([&](const std::string& labels, const PerModel& m) {
    for (const auto& [status, count] : m.by_status)
      out +=
          fmt::format("cairn_infer_requests_total{{{},code=\"{}\"}} {}\n", labels, status, count);
  });
  family("cairn_infer_items_total", "counter", "Batch elements answered.");
  each([&](const std::string& labels, const PerModel& m) {
    out += fmt::format("cairn_infer_items_total{{{}}} {}\n", labels, m.items);
  });
  family("cairn_infer_duration_seconds", "histogram",
         "From a request's last byte to its answer, queueing included.");
  each([&](const std::string& labels, const PerModel& m) {
    uint64_t sum = 0;
    for (size_t i = 0; i < m.buckets.size(); ++i) {
      sum += m.buckets[i];
      const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
      out += fmt::format("cairn_infer_duration_seconds_bucket{{{},le=\"{}\"}} {}\n", labels, bound,
                         sum);
    }
    out += fmt::format("cairn_infer_duration_seconds_sum{{{}}} {}\n", labels, m.seconds);
    out += fmt::format("cairn_infer_duration_seconds_count{{{}}} {}\n", labels, sum);
  });
  return out;
}

}  // namespace cairn::serve
