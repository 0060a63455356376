// SPDX-License-Identifier: Apache-2.0
#include "train/event_file.h"

#include <cairn/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/crc32c.h"
#include "base/file.h"

namespace cairn::train {
namespace {

constexpr auto kFlushEvery = std::chrono::seconds(2);
constexpr size_t kFlushBytes = size_t(1) << 20;

// The little of protobuf's wire format that events need. Field numbers are those of TensorFlow's
// event.proto, summary.proto and tensor.proto.
class Message {
 public:
  Message& integer(int field, uint64_t value) {
    varint(uint64_t(field) << 3);
    varint(value);
    return *this;
  }
  Message& number(int field, double value) {
    return fixed(field, 1, std::bit_cast<uint64_t>(value));
  }
  Message& number(int field, float value) {
    return fixed(field, 5, std::bit_cast<uint32_t>(value));
  }
  Message& bytes(int field, std::string_view value) {
    varint(uint64_t(field) << 3 | 2);
    varint(value.size());
    out_ += value;
    return *this;
  }
  Message& message(int field, const Message& inner) { return bytes(field, inner.out_); }
  const std::string& str() const { return out_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += char(value | 0x80);
    out_ += char(value);
  }
  template <class Bits>
  Message& fixed(int field, int type, Bits bits) {
    varint(uint64_t(field) << 3 | uint64_t(type));
    for (size_t i = 0; i < sizeof bits; ++i) out_ += char(bits >> (8 * i));
    return *this;
  }
  std::string out_;
};

template <class Bits>
void append_little_endian(std::string& out, Bits bits) {
  for (size_t i = 0; i < sizeof bits; ++i) out += char(bits >> (8 * i));
}

double now() {
  using namespace std::chrono;
  return duration<double>(system_clock::now().time_since_epoch()).count();
}

std::string host() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "localhost";
}

// An Event's field 5: a Summary of one Value.
Message summary(const Message& value) { return Message().message(5, Message().message(1, value)); }

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, std::optional<int64_t> resumed_at)
    : flushed_(std::chrono::steady_clock::now()) {
  static std::atomic<int> serial{0};
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    fail(ErrorCode::io,
         fmt::format("event file: cannot make {}: {}", printable(folder), error.message()));
  path_ = folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", int64_t(now()), host(),
                               ::getpid(), serial++);
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0)
    fail(ErrorCode::io,
         fmt::format("event file: cannot write {}: {}", printable(path_), std::strerror(errno)));
  add(0, Message().bytes(3, "brain.Event:2").str());
  if (resumed_at)
    add(*resumed_at, Message().message(7, Message().integer(1, 1)).str());  // SessionLog START
  flush();
}

EventFile::~EventFile() {
  try {
    flush();
  } catch (...) {
  }
  if (file_ >= 0) ::close(file_);
}

void EventFile::scalar(std::string_view tag, double value, int64_t step) {
  add(step, summary(Message().bytes(1, tag).number(2, float(value))).str());
}

void EventFile::image(std::string_view tag, std::string_view png, int64_t step) {
  constexpr std::string_view signature("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", 16);
  if (!png.starts_with(signature) || png.size() < 33)
    fail(ErrorCode::parse,
         fmt::format("event file: image \"{}\": expected the bytes of a PNG", tag));
  const auto big_endian = [&](size_t at) {
    uint32_t v = 0;
    for (size_t i = 0; i < 4; ++i) v = v << 8 | uint8_t(png[at + i]);
    return v;
  };
  // PNG's colour type → channels: 0 grey, 2 RGB, 3 palette (RGB), 4 grey+alpha, 6 RGBA.
  constexpr uint8_t channels[] = {1, 3, 3, 3, 2, 3, 4};
  const Message picture = Message()
                              .integer(1, big_endian(20))
                              .integer(2, big_endian(16))
                              .integer(3, channels[std::min<size_t>(uint8_t(png[25]), 6)])
                              .bytes(4, png);
  add(step, summary(Message().bytes(1, tag).message(4, picture)).str());
}

void EventFile::text(std::string_view tag, std::string_view markdown, int64_t step) {
  constexpr int kString = 7;  // DT_STRING; the shape is one dimension of one
  const Message shape = Message().message(2, Message().integer(1, 1));
  const Message tensor = Message().integer(1, kString).message(2, shape).bytes(8, markdown);
  const Message plugin = Message().message(1, Message().bytes(1, "text"));
  add(step, summary(Message().bytes(1, tag).message(8, tensor).message(9, plugin)).str());
}

void EventFile::add(int64_t step, std::string_view what) {
  Message head;
  head.number(1, now());
  if (step != 0) head.integer(2, uint64_t(step));
  std::string length;
  append_little_endian(length, uint64_t(head.str().size() + what.size()));
  buffer_ += length;
  append_little_endian(buffer_, mask_crc(crc32c(length)));
  buffer_ += head.str();
  buffer_ += what;
  append_little_endian(buffer_, mask_crc(crc32c(what, crc32c(head.str()))));
  if (buffer_.size() >= kFlushBytes || std::chrono::steady_clock::now() - flushed_ >= kFlushEvery)
    flush();
}

void EventFile::flush() {
  flushed_ = std::chrono::steady_clock::now();
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t n = ::write(file_, buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int reason = errno;
      buffer_.erase(0, done);  // what is written stays written; the rest may go later
      fail(ErrorCode::io,
           fmt::format("event file: cannot write {}: {}", printable(path_), std::strerror(reason)));
    }
    done += size_t(n);
  }
  buffer_.clear();
}

}  // namespace cairn::train
