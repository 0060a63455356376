// SPDX-License-Identifier: Apache-2.0
#include <cairn/error.h>

namespace cairn {

std::string_view name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::shape_mismatch: return "shape_mismatch";
    case ErrorCode::dtype_unsupported: return "dtype_unsupported";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::io: return "io";
    case ErrorCode::parse: return "parse";
    case ErrorCode::version_mismatch: return "version_mismatch";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::cancelled: return "cancelled";
    case ErrorCode::timeout: return "timeout";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::internal: return "internal";
  }
  return "unknown";
}

int exit_code(ErrorCode code) {
  if (code == ErrorCode::internal) return 3;
  return code == ErrorCode::cancelled ? 130 : 2;
}

Error::Error(ErrorCode code, std::string message, std::string hint)
    : code_(code), message_(std::move(message)), hint_(std::move(hint)) {
  render();
}

Error& Error::add_frame(std::string frame) {
  frames_.push_back(std::move(frame));
  render();
  return *this;
}

void Error::render() {
  text_ = message_;
  if (!hint_.empty()) text_ += (text_.ends_with('.') ? " " : ". ") + hint_;
  for (const auto& frame : frames_) text_ += "\n  in " + frame;
}

void fail(ErrorCode code, std::string message, std::string hint) {
  throw Error(code, std::move(message), std::move(hint));
}

void detail::check_failed(const char* condition, const char* file, int line, std::string message) {
  std::string_view path = file;
  if (auto slash = path.rfind('/'); slash != std::string_view::npos) path.remove_prefix(slash + 1);
  std::string text = "internal: " + std::string(condition) + " does not hold (" + std::string(path) +
                     ":" + std::to_string(line) + ")";
  if (!message.empty()) text += ": " + message;
  throw Error(ErrorCode::internal, std::move(text), "This is a fault in Cairn; please report it");
}

}  // namespace cairn
