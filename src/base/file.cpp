// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <cairn/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

namespace cairn {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

[[noreturn]] void fail_errno(const char* doing, const std::filesystem::path& path) {
  const int e = errno;
  fail(e == ENOENT ? ErrorCode::not_found : ErrorCode::io,
       fmt::format("{} {}: {}", doing, printable(path), std::strerror(e)));
}

Descriptor open_regular(const std::filesystem::path& path, size_t& size) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail_errno("cannot open", path);
  struct stat info;
  if (::fstat(file.fd, &info) != 0) fail_errno("cannot stat", path);
  if (!S_ISREG(info.st_mode)) fail(ErrorCode::io, "not a regular file: " + printable(path));
  size = size_t(info.st_size);
  return Descriptor{std::exchange(file.fd, -1)};
}

}  // namespace

void write_file(const std::filesystem::path& path, const std::function<void(const Sink&)>& fill) {
  static std::atomic<unsigned> serial{0};
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const auto temporary =
      folder / fmt::format(".{}.{}.{}.tmp", hash_value(path.filename()), ::getpid(), serial++);
  Descriptor file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)};
  if (file.fd < 0) fail_errno("cannot write", path);
  try {
    fill([&](const void* data, size_t size) {
      for (auto* at = static_cast<const char*>(data); size > 0;) {
        const ssize_t n = ::write(file.fd, at, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail_errno("cannot write", path);
        at += n, size -= size_t(n);
      }
    });
    if (::fsync(file.fd) != 0) fail_errno("cannot sync", path);
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail_errno("cannot rename onto", path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  // The rename itself survives a power cut only when the folder is synced too.
  if (Descriptor d{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)}; d.fd >= 0) ::fsync(d.fd);
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  write_file(path, [&](const Sink& sink) { sink(bytes.data(), bytes.size()); });
}

void remove_leftovers(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    size_t hash = 0;
    int pid = 0, length = 0;
    unsigned serial = 0;
    if (std::sscanf(name.c_str(), ".%zu.%d.%u.tmp%n", &hash, &pid, &serial, &length) != 3 ||
        size_t(length) != name.size() || pid <= 0)
      continue;
    if (::kill(pid, 0) != 0 && errno == ESRCH) std::filesystem::remove(entry.path(), error);
  }
}

std::string read_file(const std::filesystem::path& path, size_t limit_bytes) {
  size_t size = 0;
  const Descriptor file = open_regular(path, size);
  if (size > limit_bytes)
    fail(ErrorCode::io, fmt::format("{} has {} bytes, more than the limit of {}", printable(path), size,
                                    limit_bytes));
  std::string bytes(size, '\0');
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::read(file.fd, bytes.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("cannot read", path);
    if (n == 0) {  // shrank while we read
      bytes.resize(done);
      break;
    }
    done += size_t(n);
  }
  return bytes;
}

namespace {
// Bytes of the character that begins at s[i]; 0: that is no UTF-8 (RFC 3629).
size_t character(std::string_view s, size_t i) {
  const auto at = [&](size_t k) { return static_cast<unsigned char>(s[k]); };
  const unsigned c = at(i);
  if (c < 0x80) return 1;
  const size_t length = c >= 0xC2 && c < 0xE0 ? 2 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
  if (length == 0 || i + length > s.size()) return 0;
  for (size_t k = 1; k < length; ++k)
    if ((at(i + k) & 0xC0) != 0x80) return 0;
  const unsigned second = at(i + 1);  // too long a form, a surrogate, or beyond U+10FFFF
  const bool bad = (c == 0xE0 && second < 0xA0) || (c == 0xED && second >= 0xA0) || (c == 0xF0 && second < 0x90) ||
                   (c == 0xF4 && second >= 0x90);
  return bad ? 0 : length;
}
}  // namespace

std::string printable(const std::filesystem::path& path) {
  const std::string& s = path.native();
  std::string out;
  for (size_t i = 0; i < s.size();) {
    const bool control = static_cast<unsigned char>(s[i]) < 0x20 || s[i] == 0x7F;
    if (const size_t length = control ? 0 : character(s, i)) {
      out.append(s, i, length);
      i += length;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(s[i++]));
    }
  }
  return out;
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    uint64_t eight;  // of ASCII at once: most text is
    if (text.size() - i >= 8 && (std::memcpy(&eight, text.data() + i, 8), (eight & 0x8080808080808080u) == 0)) {
      i += 8;
      continue;
    }
    const size_t length = character(text, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

FileMap::FileMap(const std::filesystem::path& path, bool copy_on_write) {
  const Descriptor file = open_regular(path, size_);
  if (size_ == 0) return;
  void* at = ::mmap(nullptr, size_, PROT_READ | (copy_on_write ? PROT_WRITE : 0), MAP_PRIVATE, file.fd, 0);
  if (at == MAP_FAILED) fail_errno("cannot map", path);
  data_ = at;
}
FileMap::FileMap(FileMap&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
FileMap::~FileMap() {
  if (data_) ::munmap(const_cast<void*>(data_), size_);
}

}  // namespace cairn
