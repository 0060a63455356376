// SPDX-License-Identifier: Apache-2.0
#include "inspect/profile.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "inspect/table.h"

namespace cairn::inspect {

Profile::Profile() { set_profile_sink(this); }
Profile::~Profile() { set_profile_sink(nullptr); }

void Profile::record(const ProfileEvent& e) {
  std::lock_guard lock(mutex_);
  events_.push_back({std::string(e.name), std::string(e.path), e.begin_ns, e.end_ns, e.flops, e.bytes,
                     int(::syscall(SYS_gettid))});
}

std::string Profile::table(size_t rows) const {
  struct Sum {
    int64_t calls = 0, ns = 0;
    double flops = 0, bytes = 0;
  };
  std::lock_guard lock(mutex_);
  std::map<std::string, Sum> sums;
  int64_t total = 0;
  for (const Event& e : events_) {
    Sum& s = sums[e.name];
    ++s.calls;
    s.ns += e.end_ns - e.begin_ns;
    s.flops += e.flops;
    s.bytes += e.bytes;
    total += e.end_ns - e.begin_ns;
  }
  std::vector<std::pair<std::string, Sum>> order(sums.begin(), sums.end());
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  using Align = Table::Align;
  Table out({{"operator and kernel"}, {"calls", Align::right}, {"ms", Align::right}, {"share", Align::right},
             {"GFLOP/s", Align::right}, {"GB/s", Align::right}});
  for (size_t i = 0; i < std::min(rows, order.size()); ++i) {
    const auto& [name, s] = order[i];
    const double ns = std::max<double>(1, double(s.ns));
    out.row({name, std::to_string(s.calls), fmt::format("{:.2f}", double(s.ns) / 1e6),
             fmt::format("{:.1f} %", 100 * double(s.ns) / std::max<double>(1, double(total))),
             fmt::format("{:.1f}", s.flops / ns), fmt::format("{:.1f}", s.bytes / ns)});
  }
  out.rule();
  out.row({"all", std::to_string(events_.size()), fmt::format("{:.2f}", double(total) / 1e6), "", "", ""});
  return out.str();
}

std::string Profile::chrome_trace() const {
  std::lock_guard lock(mutex_);
  nlohmann::json events = nlohmann::json::array();
  const int64_t start = events_.empty() ? 0 : events_.front().begin_ns;
  for (const Event& e : events_)
    events.push_back({{"name", e.name}, {"cat", "step"}, {"ph", "X"}, {"pid", 1}, {"tid", e.thread},
                      {"ts", double(e.begin_ns - start) / 1e3}, {"dur", double(e.end_ns - e.begin_ns) / 1e3},
                      {"args", {{"module", e.path}, {"flops", e.flops}, {"bytes", e.bytes}}}});
  return nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace cairn::inspect
