// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <mutex>
#include <utility>

namespace cairn {
namespace {
std::mutex& guard() {
  static std::mutex mutex;
  return mutex;
}
LogSink& current() {
  static LogSink sink;
  return sink;
}
}  // namespace

void set_log_sink(LogSink sink) {
  std::lock_guard lock(guard());
  current() = std::move(sink);
}

void log(LogLevel level, std::string_view category, std::string_view message) {
  std::lock_guard lock(guard());
  if (current()) current()(level, category, message);
}

}  // namespace cairn
