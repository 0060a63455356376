// SPDX-License-Identifier: Apache-2.0
// Logging: silent by default; the program that uses the library installs a sink.
#pragma once
#include <functional>
#include <string_view>

namespace cairn {

enum class LogLevel { debug, info, warning };

// `category` is the folder that speaks ("data", "runtime", ...). The sink may be called from any thread.
using LogSink = std::function<void(LogLevel, std::string_view category, std::string_view message)>;
void set_log_sink(LogSink sink);  // empty: silent
void log(LogLevel level, std::string_view category, std::string_view message);

}  // namespace cairn
