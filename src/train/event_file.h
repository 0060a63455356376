// SPDX-License-Identifier: Apache-2.0
// Event file: scalars, pictures and texts over the steps, as TensorBoard reads them.
// Format: TFRecords (length, masked CRC-32C, protobuf `Event`, masked CRC-32C), appended only; a
// reader skips a record that a crash left half-written.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace cairn::train {

// Appends to a file of its own, `events.out.tfevents.…`, in `folder`; for use by one thread.
// Records go to the system every two seconds (when something is added), on flush() and at the end.
// All but the destructor throw io, naming the file.
class EventFile {
 public:
  // `folder` is made if need be. A resumed run passes the step that it goes on from: TensorBoard
  // then drops what the earlier file of the folder holds at that step and later.
  explicit EventFile(const std::filesystem::path& folder, std::optional<int64_t> resumed_at = {});
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Tags with a common part before '/' are shown together: "loss/train", "loss/test".
  void scalar(std::string_view tag, double value, int64_t step);
  void image(std::string_view tag, std::string_view png, int64_t step);  // the bytes of a PNG file
  void text(std::string_view tag, std::string_view markdown, int64_t step);
  void flush();
  const std::filesystem::path& path() const { return path_; }

 private:
  void add(int64_t step, std::string_view what);
  std::filesystem::path path_;
  int file_ = -1;
  std::string buffer_;
  std::chrono::steady_clock::time_point flushed_;
};

}  // namespace cairn::train
