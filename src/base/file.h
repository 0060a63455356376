// SPDX-License-Identifier: Apache-2.0
// Files that appear whole or not at all, and reads with a limit.
#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace cairn {

// Writes `bytes` beside `path`, syncs, renames over it. On failure `path` is as it was; throws io.
void write_file(const std::filesystem::path& path, std::string_view bytes);

// The same for content written in pieces: `fill` gets a sink to call any number of times.
using Sink = std::function<void(const void* data, size_t size)>;
void write_file(const std::filesystem::path& path, const std::function<void(const Sink&)>& fill);

// Removes what write_file left in a folder because its process was killed while it wrote.
void remove_leftovers(const std::filesystem::path& folder);

// Reads a whole regular file of at most `limit_bytes`; throws not_found or io, naming the path.
std::string read_file(const std::filesystem::path& path, size_t limit_bytes = size_t(1) << 32);

// A path as an error or a JSON text may show it: control characters and invalid UTF-8 escaped as \xNN.
std::string printable(const std::filesystem::path& path);

// What JSON, YAML and ONNX can hold (RFC 3629).
bool is_utf8(std::string_view text);

// A memory map of a file; empty for a zero-byte file. Movable, unmapped at the end. Its pages are
// read-only, or with `copy_on_write` writable without reaching the file.
class FileMap {
 public:
  explicit FileMap(const std::filesystem::path& path, bool copy_on_write = false);
  FileMap(FileMap&& other) noexcept;
  FileMap& operator=(FileMap&&) = delete;
  ~FileMap();
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  const void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace cairn
