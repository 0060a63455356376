// SPDX-License-Identifier: Apache-2.0
// The format: u64 header length, JSON header, then the tensors' bytes without holes, little-endian.
//   {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0,
//   24]}}
#include <cairn/safetensors.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/crc32c.h"
#include "base/file.h"

namespace cairn {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr uint64_t kMaxHeader = 100'000'000;  // the reference reader's limit
constexpr size_t kMaxNumbers = 1000;          // of a shape, far above any rank, to bound memory
constexpr size_t kAlignment = 64;             // of the data in the file, and so in the map
constexpr std::string_view kCrc = "cairn.crc32c", kMetadata = "__metadata__";

struct FormatType {
  std::string_view name;
  uint64_t bits;
  std::optional<DType> dtype;  // none: a type of the format that Cairn has not
};
constexpr FormatType kTypes[] = {{"F64", 64, DType::f64}, {"F32", 32, DType::f32},
                                 {"F16", 16, DType::f16}, {"BF16", 16, DType::bf16},
                                 {"I64", 64, DType::i64}, {"I32", 32, DType::i32},
                                 {"I16", 16, DType::i16}, {"I8", 8, DType::i8},
                                 {"U8", 8, DType::u8},    {"BOOL", 8, DType::boolean},
                                 {"U16", 16, {}},         {"U32", 32, {}},
                                 {"U64", 64, {}},         {"C64", 64, {}},
                                 {"F8_E5M2", 8, {}},      {"F8_E4M3", 8, {}},
                                 {"F8_E8M0", 8, {}},      {"F6_E3M2", 6, {}},
                                 {"F6_E2M3", 6, {}},      {"F4", 4, {}}};

std::string_view format_name(DType dtype) {
  return std::find_if(std::begin(kTypes), std::end(kTypes),
                      [&](auto& t) { return t.dtype == dtype; })
      ->name;
}

struct Entry {
  std::string name;
  const FormatType* type = nullptr;
  std::optional<std::vector<uint64_t>> shape, offsets;
  uint64_t begin() const { return (*offsets)[0]; }
  uint64_t end() const { return (*offsets)[1]; }
};

struct Header {
  std::vector<Entry> tensors;
  StringPairs metadata;
};

// Follows the parser's events through the header; anything out of place ends it with an error.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  Header take() && { return std::move(header_); }

  bool key(std::string& key) override {
    if (skipping_ > 0) return true;
    switch (in_) {
      case In::header:
        if (!names_.insert(key).second)
          refuse(fmt::format("\"{}\" is there twice", printable(key)));
        if (key != kMetadata) header_.tensors.push_back({.name = key});
        key_ = key;
        return true;
      case In::metadata:
        if (!metadata_keys_.insert(key).second)
          refuse(fmt::format("metadata \"{}\" is there twice", printable(key)));
        key_ = key;
        return true;
      case In::tensor:
        if (std::find(fields_.begin(), fields_.end(), key) != fields_.end())
          refuse(fmt::format("{}: \"{}\" is there twice", tensor(), printable(key)));
        fields_.push_back(key);
        key_ = key;
        return true;
      default:
        return misplaced("a key");
    }
  }
  bool string(std::string& text) override {
    if (skips()) return true;
    if (in_ == In::metadata) {
      header_.metadata.emplace_back(key_, text);
      return true;
    }
    if (in_ != In::tensor || key_ != "dtype") misplaced("a string");
    const auto* type =
        std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& t) { return t.name == text; });
    if (type == std::end(kTypes))
      refuse(fmt::format("{}: no such dtype: \"{}\"", tensor(), printable(text)));
    header_.tensors.back().type = type;
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (skips()) return true;
    if (in_ != In::numbers) misplaced("a number");
    if (numbers_->size() == kMaxNumbers) refuse(fmt::format("{}: {} is too long", tensor(), key_));
    numbers_->push_back(value);
    return true;
  }
  bool number_integer(int64_t) override { return skips() || misplaced("a negative number"); }
  bool number_float(double, const std::string&) override {
    return skips() || misplaced("a number that is not whole");
  }
  bool boolean(bool) override { return skips() || misplaced("true or false"); }
  bool binary(nlohmann::json::binary_t&) override { return misplaced("binary data"); }
  bool null() override {
    return skips() || (in_ == In::header && key_ == kMetadata) || misplaced("null");
  }
  bool start_object(size_t) override {
    if (in_ == In::top) {
      in_ = In::header;
    } else if (in_ == In::header) {
      in_ = key_ == kMetadata ? In::metadata : In::tensor;
      fields_.clear();
    } else if (skips()) {
      ++skipping_;
    } else {
      misplaced("an object");
    }
    return true;
  }
  bool end_object() override {
    if (skipping_ > 0) {
      --skipping_;
      return true;
    }
    if (in_ == In::tensor) {
      const Entry& e = header_.tensors.back();
      const char* missing = !e.type      ? "dtype"
                            : !e.shape   ? "shape"
                            : !e.offsets ? "data_offsets"
                                         : nullptr;
      if (missing) refuse(fmt::format("{}: \"{}\" is missing", tensor(), missing));
    }
    in_ = in_ == In::header ? In::top : In::header;
    return true;
  }
  bool start_array(size_t) override {
    if (in_ == In::tensor && skipping_ == 0 && (key_ == "shape" || key_ == "data_offsets")) {
      in_ = In::numbers;
      auto& e = header_.tensors.back();
      numbers_ = &(key_ == "shape" ? e.shape : e.offsets).emplace();
    } else if (skips()) {
      ++skipping_;
    } else {
      misplaced("an array");
    }
    return true;
  }
  bool end_array() override {
    if (skipping_ > 0) {
      --skipping_;
      return true;
    }
    in_ = In::tensor;
    if (key_ == "data_offsets" && numbers_->size() != 2)
      refuse(fmt::format("{}: data_offsets has {} numbers, not 2", tensor(), numbers_->size()));
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    refuse(fmt::format("the header is not JSON: see its byte {}", at));
  }

 private:
  enum class In { top, header, metadata, tensor, numbers };

  // Fields of a tensor other than the three are skipped, with all that is in them.
  bool skips() const {
    return skipping_ > 0 ||
           (in_ == In::tensor && key_ != "dtype" && key_ != "shape" && key_ != "data_offsets");
  }
  std::string tensor() const {
    return fmt::format("tensor \"{}\"", printable(header_.tensors.back().name));
  }
  [[noreturn]] static void refuse(std::string what) { fail(ErrorCode::parse, std::move(what)); }
  [[noreturn]] bool misplaced(const char* what) const {
    refuse(fmt::format("the header has {} as the value of \"{}\"", what, printable(key_)));
  }

  Header header_;
  In in_ = In::top;
  int64_t skipping_ = 0;  // depth inside a skipped value
  std::string key_;
  std::vector<std::string> fields_;
  std::vector<uint64_t>* numbers_ = nullptr;
  std::unordered_set<std::string> names_, metadata_keys_;
};

// The checks that the format demands, in the reference reader's order; `size` is that of the data.
void check_layout(const Header& header, uint64_t size) {
  const auto refuse = [](const Entry& e, std::string what) {
    fail(ErrorCode::parse, fmt::format("tensor \"{}\": {}", printable(e.name), what));
  };
  std::vector<const Entry*> by_place;
  for (const Entry& e : header.tensors) by_place.push_back(&e);
  std::stable_sort(by_place.begin(), by_place.end(),
                   [](auto* a, auto* b) { return *a->offsets < *b->offsets; });
  uint64_t expected = 0;
  for (const Entry* e : by_place) {
    if (e->begin() != expected || e->end() < e->begin())
      refuse(*e,
             fmt::format("its data is at {} to {}, expected from {} on, without hole or overlap",
                         e->begin(), e->end(), expected));
    uint64_t bits = e->type->bits, elements = 1;
    for (uint64_t length : *e->shape)
      if (__builtin_mul_overflow(elements, length, &elements))
        refuse(*e, fmt::format("shape [{}] is too large", fmt::join(*e->shape, ",")));
    if (__builtin_mul_overflow(elements, bits, &bits))
      refuse(*e, fmt::format("shape [{}] is too large", fmt::join(*e->shape, ",")));
    if (bits % 8 != 0 || bits / 8 != e->end() - e->begin())
      refuse(*e, fmt::format("{} [{}] takes {} bytes, but its data has {}", e->type->name,
                             fmt::join(*e->shape, ","), double(bits) / 8, e->end() - e->begin()));
    expected = e->end();
  }
  if (expected != size)
    fail(ErrorCode::parse,
         fmt::format("the tensors take {} bytes, but the file has {} for them", expected, size));
}

std::string hex(uint32_t crc) { return fmt::format("{:08x}", crc); }

// One checksum over all that the header says, whatever its order and offsets.
std::string header_crc(const std::vector<std::string>& types, StringPairs metadata) {
  std::vector<std::string> lines = types;
  for (const auto& [key, value] : metadata)
    if (key != kCrc)
      lines.push_back(
          fmt::format("{}={}", nlohmann::json(key).dump(), nlohmann::json(value).dump()));
  std::sort(lines.begin(), lines.end());
  uint32_t crc = 0;
  for (const auto& line : lines) crc = crc32c(line + '\n', crc);
  return hex(crc);
}
std::string type_line(std::string_view name, std::string_view dtype, auto&& shape) {
  return fmt::format("{}:{}[{}]", nlohmann::json(name).dump(), dtype, fmt::join(shape, ","));
}

constexpr const char* kDamaged =
    "The file was damaged since Cairn wrote it: take another copy. If a tool changed it on purpose "
    "and "
    "kept Cairn's checksums, have it drop the metadata that begins with \"cairn.crc32c\"";

}  // namespace

struct SafetensorsFile::Impl {
  std::filesystem::path path;
  FileMap map;
  Header header;
  size_t data_at = 0;
  std::vector<std::string> names;
  std::unordered_map<std::string_view, const Entry*> by_name;
  std::unordered_map<std::string, std::string> crcs;  // tensor → checksum

  explicit Impl(const std::filesystem::path& p) : path(p), map(p, true) {
    try {
      read();
    } catch (const Error& e) {
      fail(e.code(), fmt::format("safetensors: {}: {}", printable(path), e.message()), e.hint());
    }
  }
  void read();
  const Entry& entry(std::string_view name) const;
  [[noreturn]] void fail_at(ErrorCode code, const Entry& e, const std::string& what,
                            std::string hint = {}) const {
    fail(
        code,
        fmt::format("safetensors: {}: tensor \"{}\": {}", printable(path), printable(e.name), what),
        std::move(hint));
  }
};

void SafetensorsFile::Impl::read() {
  const std::string_view file = map.bytes();
  // What people hand in by mistake. Pickles are never opened: loading one runs code of its maker.
  if (file.starts_with("PK\x03\x04") || file.starts_with("\x80\x02"))
    fail(ErrorCode::parse, "this is a PyTorch file (a pickle), not a safetensors file",
         "Convert it where it is trusted: safetensors.torch.save_file(torch.load(file), "
         "\"weights.safetensors\")");
  if (file.size() < 8)
    fail(ErrorCode::parse,
         fmt::format("it has {} bytes, too few for a safetensors file", file.size()));
  uint64_t length;
  std::memcpy(&length, file.data(), 8);
  if (length > kMaxHeader)
    fail(ErrorCode::parse,
         fmt::format("its first 8 bytes give a header of {} bytes, more than the limit of {}",
                     length, kMaxHeader),
         "It is probably not a safetensors file");
  if (length > file.size() - 8)
    fail(ErrorCode::parse,
         fmt::format("the header should have {} bytes, but the file ends after {}", length,
                     file.size() - 8),
         "It was cut short, or is not a safetensors file");
  const std::string_view json = file.substr(8, length);
  if (!json.starts_with('{')) fail(ErrorCode::parse, "its header does not begin with {");

  if (json.find('\0') != json.npos)  // the parser would take it for the end
    fail(ErrorCode::parse, "the header is not JSON: it has a zero byte");
  HeaderReader reader;
  nlohmann::json::sax_parse(json, &reader);
  header = std::move(reader).take();
  data_at = 8 + length;
  check_layout(header, file.size() - data_at);

  std::vector<std::string> types;
  for (const Entry& e : header.tensors) {
    names.push_back(e.name);
    by_name.emplace(e.name, &e);
    types.push_back(type_line(e.name, e.type->name, *e.shape));
  }
  // Take Cairn's checksums out of the metadata.
  const auto is_crc = [](const auto& item) {
    const std::string_view key = item.first;
    return key == kCrc || (key.starts_with(kCrc) && key[kCrc.size()] == ':');
  };
  std::string own;
  for (const auto& item : header.metadata)
    if (item.first == kCrc)
      own = item.second;
    else if (is_crc(item))
      crcs.emplace(item.first.substr(kCrc.size() + 1), item.second);
  if (own.empty() && crcs.empty()) return;
  if (own != header_crc(types, header.metadata))
    fail(ErrorCode::parse, "the header's checksum does not match", kDamaged);
  std::erase_if(header.metadata, is_crc);
}

const Entry& SafetensorsFile::Impl::entry(std::string_view name) const {
  if (const auto at = by_name.find(name); at != by_name.end()) return *at->second;
  std::vector<std::string> some;
  for (const auto& n : names) {
    // Close enough to be what was meant: the same last part, as in "fc.weight" and
    // "model.fc.weight".
    if (n.ends_with(name) || name.ends_with(n)) some.push_back(printable(n));
    if (some.size() == 3) break;
  }
  fail(ErrorCode::not_found,
       fmt::format("safetensors: {} has no tensor \"{}\"", printable(path),
                   printable(std::string(name))),
       some.empty() ? fmt::format("It has {} tensors", names.size())
                    : fmt::format("Did you mean {}?", fmt::join(some, " or ")));
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : impl_(std::make_shared<Impl>(path)) {}

const std::vector<std::string>& SafetensorsFile::names() const { return impl_->names; }

bool SafetensorsFile::contains(std::string_view name) const {
  return impl_->by_name.contains(name);
}

TensorType SafetensorsFile::type(std::string_view name) const {
  const Entry& e = impl_->entry(name);
  if (!e.type->dtype)
    impl_->fail_at(ErrorCode::dtype_unsupported, e,
                   fmt::format("Cairn has no type {}", e.type->name),
                   "Convert it to one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL");
  if (e.shape->size() > size_t(kMaxRank))
    impl_->fail_at(ErrorCode::unsupported, e,
                   fmt::format("it has {} axes: Cairn has at most {}", e.shape->size(), kMaxRank));
  Shape shape;
  int64_t strides = 1;  // with an axis of length zero the other lengths are not bounded by the data
  for (const uint64_t length : *e.shape) {
    if (length > INT64_MAX ||
        __builtin_mul_overflow(strides, std::max<int64_t>(1, int64_t(length)), &strides))
      impl_->fail_at(ErrorCode::unsupported, e,
                     fmt::format("shape [{}] is too large", fmt::join(*e.shape, ",")));
    shape.push_back(int64_t(length));
  }
  return {*e.type->dtype, shape};
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
  const TensorType t = type(name);
  const Entry& e = impl_->entry(name);
  const std::string_view bytes =
      impl_->map.bytes().substr(impl_->data_at + e.begin(), e.end() - e.begin());
  if (const auto crc = impl_->crcs.find(e.name);
      crc != impl_->crcs.end() && crc->second != hex(crc32c(bytes)))
    impl_->fail_at(ErrorCode::parse, e, "its checksum does not match its data", kDamaged);

  if (t.dtype == DType::boolean &&
      std::any_of(bytes.begin(), bytes.end(), [](char c) { return uint8_t(c) > 1; })) {
    Tensor copy = Tensor::uninitialized(t);  // other tools take any byte but 0 for true
    std::transform(bytes.begin(), bytes.end(), copy.mutable_bytes(),
                   [](char c) { return std::byte(c != 0); });
    return copy;
  }
  if (bytes.empty() || reinterpret_cast<uintptr_t>(bytes.data()) % size_of(t.dtype) != 0)
    return Tensor::from_bytes(t, bytes.data(), bytes.size());
  // Copy on write: the map's pages may be written, and the file stays as it is.
  auto storage = Storage::borrow(const_cast<char*>(bytes.data()), bytes.size(), [keep = impl_] {});
  return Tensor::view(std::move(storage), t, dense_strides(t.shape));
}

NamedTensors SafetensorsFile::tensors() const {
  NamedTensors all;
  for (const auto& name : names()) all.emplace_back(name, tensor(name));
  return all;
}

const StringPairs& SafetensorsFile::metadata() const { return impl_->header.metadata; }

const std::string* SafetensorsFile::metadata(std::string_view key) const {
  for (const auto& [k, value] : metadata())
    if (k == key) return &value;
  return nullptr;
}

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const StringPairs& metadata) {
  const auto refuse = [&](const std::string& name, const char* why) {
    fail(ErrorCode::invalid_argument,
         fmt::format("safetensors: writing {}: \"{}\" {}", printable(path), printable(name), why));
  };
  const auto quote = [&](const std::string& text) {
    try {
      return nlohmann::json(text).dump();
    } catch (const nlohmann::json::exception&) {
      refuse(text, "is not UTF-8");
      return std::string();
    }
  };
  std::unordered_set<std::string> seen;
  for (const auto& [name, tensor] : tensors) {
    if (name == kMetadata) refuse(name, "is a reserved name");
    if (!seen.insert(name).second) refuse(name, "is there twice");
    quote(name);
  }
  seen.clear();
  for (const auto& [key, value] : metadata) {
    if (key.starts_with(kCrc)) refuse(key, "is reserved metadata");
    if (!seen.insert(key).second) refuse(key, "is there twice in the metadata");
    quote(key), quote(value);
  }

  // The widest types come first, so that each tensor is aligned for its own.
  std::vector<Tensor> dense;
  std::vector<size_t> place(tensors.size());
  for (const auto& [name, tensor] : tensors) dense.push_back(tensor.dense());
  std::iota(place.begin(), place.end(), size_t(0));
  std::stable_sort(place.begin(), place.end(), [&](size_t a, size_t b) {
    return size_of(dense[a].dtype()) > size_of(dense[b].dtype());
  });
  const auto bytes_of = [](const Tensor& t) {
    return std::string_view(reinterpret_cast<const char*>(t.bytes()), size_t(t.type().bytes()));
  };
  std::vector<size_t> begin(tensors.size());
  size_t total = 0;
  for (size_t i : place) begin[i] = total, total += bytes_of(dense[i]).size();

  StringPairs all = metadata;
  std::vector<std::string> types;
  for (size_t i = 0; i < dense.size(); ++i) {
    all.emplace_back(fmt::format("{}:{}", kCrc, tensors[i].first), hex(crc32c(bytes_of(dense[i]))));
    types.push_back(type_line(tensors[i].first, format_name(dense[i].dtype()), dense[i].shape()));
  }
  all.emplace_back(kCrc, header_crc(types, all));

  std::string header = "{\"__metadata__\":{";
  for (const auto& [key, value] : all)
    header +=
        fmt::format("{}{}:{}", &key == &all.front().first ? "" : ",", quote(key), quote(value));
  header += '}';
  for (size_t i = 0; i < dense.size(); ++i)
    header += fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          quote(tensors[i].first), format_name(dense[i].dtype()),
                          fmt::join(dense[i].shape(), ","), begin[i],
                          begin[i] + bytes_of(dense[i]).size());
  header += '}';
  while ((8 + header.size()) % kAlignment != 0) header += ' ';
  if (header.size() > kMaxHeader)
    fail(ErrorCode::invalid_argument,
         fmt::format("safetensors: writing {}: names and metadata take {} bytes: the limit is {}",
                     printable(path), header.size(), kMaxHeader));

  write_file(path, [&](const Sink& sink) {
    const uint64_t length = header.size();
    sink(&length, sizeof length);
    sink(header.data(), header.size());
    for (size_t i : place) sink(bytes_of(dense[i]).data(), bytes_of(dense[i]).size());
  });
}

}  // namespace cairn
