// SPDX-License-Identifier: Apache-2.0
// Safetensors files: named tensors and a map of strings. Weights and checkpoints are kept in these,
// and every other tool of the trade reads them.
#pragma once
#include <cairn/tensor.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using StringPairs = std::vector<std::pair<std::string, std::string>>;

// A file opened for reading: mapped into memory, so that opening is quick and tensors are views of
// the map (which lives as long as any of them; writing into one would not reach the file). The
// header is judged as the reference reader judges it, and duplicate names are refused; what is
// refused throws parse, naming file and tensor. The file must not be shortened in place while it is
// open.
class CAIRN_API SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<std::string>& names() const;  // in the order of the header
  bool contains(std::string_view name) const;
  // The type of a tensor. throws not_found, with close names; dtype_unsupported (U16, F8_E4M3,
  // ...).
  TensorType type(std::string_view name) const;
  // The tensor. In files that Cairn wrote its checksum is compared each time: throws parse when the
  // bytes have changed since. Copies only where the file keeps the tensor unaligned.
  Tensor tensor(std::string_view name) const;
  NamedTensors tensors() const;  // all of them, so all are checked

  const StringPairs& metadata() const;                      // without Cairn's checksums
  const std::string* metadata(std::string_view key) const;  // null when absent

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// Writes a file, whole or not at all (base/file.h). Order of tensors and metadata is kept; data is
// aligned for its type. Beside the caller's metadata, "cairn.crc32c:<name>" holds each tensor's
// CRC-32C in hexadecimal and "cairn.crc32c" the header's. The same input gives the same bytes.
// throws invalid_argument on a duplicate or reserved name, or one that is not UTF-8.
CAIRN_API void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                                 const StringPairs& metadata = {});

}  // namespace cairn
