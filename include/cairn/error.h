// SPDX-License-Identifier: Apache-2.0
// Errors: one exception type, with a code, a hint on how to mend it, and the frames it passed through.
#pragma once
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#define CAIRN_API __attribute__((visibility("default")))

namespace cairn {

// What went wrong. All but `internal` mean that something outside Cairn must change.
enum class ErrorCode {
  invalid_argument,   // a value out of range or a wrong option
  shape_mismatch,     // shapes that do not fit together
  dtype_unsupported,  // an operator or format cannot take this element type
  not_found,          // a file, model, parameter or operator that does not exist
  io,                 // the operating system refused: permissions, disk full
  parse,              // bytes that do not follow their format
  version_mismatch,   // a file of a newer or foreign version
  out_of_memory,
  cancelled,    // the user interrupted
  timeout,
  unsupported,  // valid, but not (yet) something Cairn does
  internal,     // our own fault; please report
};
CAIRN_API std::string_view name(ErrorCode code);

// The process exit code that the command line gives for an error: 3 for internal, 130 for cancelled, else 2.
CAIRN_API int exit_code(ErrorCode code);

// The one exception that Cairn throws. Copyable; safe to move between threads.
// what() is "<message>. <hint>" followed by one "  in <frame>" line a frame, innermost first.
class CAIRN_API Error : public std::exception {
 public:
  // `message` reads "<stage>: <what is wrong>: got X, expected Y"; `hint` says how to mend it.
  Error(ErrorCode code, std::string message, std::string hint = {});
  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  const std::string& hint() const noexcept { return hint_; }
  const std::vector<std::string>& frames() const noexcept { return frames_; }
  const char* what() const noexcept override { return text_.c_str(); }
  // Adds where the error passed through, e.g. "module model.fc2" or "train.cpp:31". Returns *this.
  Error& add_frame(std::string frame);

 private:
  void render();
  ErrorCode code_;
  std::string message_, hint_, text_;
  std::vector<std::string> frames_;
};

// Reports a mistake that the caller can mend.
[[noreturn]] CAIRN_API void fail(ErrorCode code, std::string message, std::string hint = {});

namespace detail {
[[noreturn]] CAIRN_API void check_failed(const char* condition, const char* file, int line,
                                         std::string message);
}

// States an invariant of ours; when it does not hold, throws an `internal` error that asks for a report.
#define CAIRN_CHECK(condition, ...)                                                          \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::cairn::detail::check_failed(#condition, __FILE__, __LINE__, ::std::string(__VA_ARGS__)); \
  } while (false)

}  // namespace cairn
