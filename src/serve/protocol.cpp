// SPDX-License-Identifier: Apache-2.0
// Reading infer requests and writing infer answers.
#include "serve/protocol.h"

#include <cairn/dtype.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/file.h"
#include "serve/engine.h"
#include "serve/json.h"

namespace cairn::serve {
namespace {

[[noreturn]] void bad(std::string message, std::string hint = {}) {
  fail(ErrorCode::invalid_argument, "request: " + std::move(message), std::move(hint));
}

// Calls f(T{}) with the C++ type that holds one element; not for DataType::bytes.
template <class F>
decltype(auto) visit(DataType type, F&& f) {
  switch (type) {
    case DataType::boolean:
      return f(bool{});
    case DataType::u8:
      return f(uint8_t{});
    case DataType::u16:
      return f(uint16_t{});
    case DataType::u32:
      return f(uint32_t{});
    case DataType::u64:
      return f(uint64_t{});
    case DataType::i8:
      return f(int8_t{});
    case DataType::i16:
      return f(int16_t{});
    case DataType::i32:
      return f(int32_t{});
    case DataType::i64:
      return f(int64_t{});
    case DataType::f16:
      return f(Half{});
    case DataType::bf16:
      return f(BFloat16{});
    case DataType::f32:
      return f(float{});
    case DataType::f64:
      return f(double{});
    case DataType::bytes:
      break;
  }
  CAIRN_CHECK(false, "serve: BYTES have no element type");
}

template <class T>
constexpr bool kSixteenBit = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

// ---- JSON data → tensor -------------------------------------------------------------------------

template <class T>
std::optional<T> parse_real(std::string_view token) {
  if (token == "NaN") return std::numeric_limits<T>::quiet_NaN();
  if (token == "Infinity") return std::numeric_limits<T>::infinity();
  if (token == "-Infinity") return -std::numeric_limits<T>::infinity();
  const char* const end = token.data() + token.size();
  T value{};
  const auto [stop, ec] = std::from_chars(token.data(), end, value);
  if (stop != end) return std::nullopt;
  if (ec == std::errc()) return value;
  if constexpr (std::is_same_v<T, float>) {  // out of range: too large, or so small that it is zero
    const auto wide = parse_real<double>(token);
    if (wide && std::abs(*wide) < 1) return float(*wide);
  }
  return std::nullopt;
}

template <class T>
std::optional<T> parse_scalar(std::string_view token) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    const auto wide = parse_real<float>(token);
    if (!wide) return std::nullopt;
    const T value = [&] {
      if constexpr (std::is_same_v<T, Half>)
        return to_half(*wide);
      else
        return to_bfloat16(*wide);
    }();
    if (std::isinf(to_float(value)) && !std::isinf(*wide)) return std::nullopt;
    return value;
  } else if constexpr (std::is_floating_point_v<T>) {
    return parse_real<T>(token);
  } else {
    T value{};
    const char* const end = token.data() + token.size();
    const auto [stop, ec] = std::from_chars(token.data(), end, value);
    if (ec == std::errc() && stop == end) return value;
    // 1.0 and 1e3 are integers too, as long as a double holds them exactly.
    const auto wide = parse_real<double>(token);
    if (!wide || *wide != std::floor(*wide) || std::abs(*wide) > 0x1p53) return std::nullopt;
    if (*wide < double(std::numeric_limits<T>::min()) ||
        *wide > double(std::numeric_limits<T>::max()))
      return std::nullopt;
    return T(*wide);
  }
}

template <class T>
T read_scalar(JsonReader& json, DataType type) {
  std::string quoted;
  std::string_view token;
  const char first = json.peek();
  if constexpr (std::is_same_v<T, bool>) {
    if (first == 't' || first == 'f') return json.boolean();
    token = json.number();
    if (token != "0" && token != "1") json.error(fmt::format("expected a BOOL, got {}", token));
    return token == "1";
  } else {
    if (first == '"' && (type == DataType::f32 || type == DataType::f64 || kSixteenBit<T>)) {
      json.string(quoted);
      if (quoted != "NaN" && quoted != "Infinity" && quoted != "-Infinity")
        json.error("expected a number, got a string");
      token = quoted;
    } else {
      token = json.number();
    }
    const auto value = parse_scalar<T>(token);
    if (!value) json.error(fmt::format("{} is not a {}", token.substr(0, 40), name(type)));
    return *value;
  }
}

// Calls scalar() before each element of a list that is nested as `shape` says.
template <class F>
void walk_nested(JsonReader& json, std::span<const int64_t> shape, F& scalar) {
  int64_t count = 0;
  json.array([&] {
    if (count++ == shape[0])
      json.error(fmt::format("list of more than the shape's {} entries", shape[0]));
    if (shape.size() == 1)
      scalar();
    else
      walk_nested(json, shape.subspan(1), scalar);
  });
  if (count != shape[0])
    json.error(fmt::format("list of {} entries where the shape says {}", count, shape[0]));
}

template <class F>
void walk(JsonReader json, std::string_view text, std::span<const int64_t> shape, int64_t count,
          F scalar) {
  if (json.peek() != '[') {  // a lone value
    if (count != 1) json.error("expected a list");
    scalar(json);
    return;
  }
  JsonReader ahead(text.substr(1));
  const bool nested = shape.size() > 1 && ahead.peek() == '[';
  const int64_t flat[] = {count};
  auto next = [&] { scalar(json); };
  walk_nested(json, nested ? shape : std::span<const int64_t>(flat), next);
}

Blob from_json(std::string_view input, DataType type, std::vector<int64_t> shape,
               std::string_view text) {
  const int64_t count = element_count(shape);
  // An element takes a character and a comma, so a short text cannot make us allocate much.
  if (count > int64_t(text.size() / 2) + 1)
    fail(ErrorCode::shape_mismatch,
         fmt::format("request: data of input {} has fewer elements than shape {} says",
                     shown(input), shown(shape)));
  const JsonReader start(text, "data of input " + shown(input));
  if (type == DataType::bytes) {
    auto packed = std::make_shared<std::string>();
    walk(start, text, shape, count, [&](JsonReader& json) {
      const size_t at = packed->size();
      packed->append(4, '\0');
      json.string(*packed);
      const uint32_t size = uint32_t(packed->size() - at - 4);
      std::memcpy(packed->data() + at, &size, 4);
    });
    return {type, std::move(shape), std::as_bytes(std::span(*packed)), packed};
  }
  return visit(type, [&](auto tag) -> Blob {
    using T = decltype(tag);
    std::shared_ptr<T[]> values(new T[size_t(count)]);
    T* out = values.get();
    walk(start, text, shape, count, [&](JsonReader& json) { *out++ = read_scalar<T>(json, type); });
    return {type, std::move(shape), std::as_bytes(std::span(values.get(), size_t(count))), values};
  });
}

// ---- raw bytes → tensor -------------------------------------------------------------------------

void check_bytes(std::string_view input, std::span<const std::byte> rest, int64_t count) {
  for (; count > 0; --count) {
    uint32_t size = 0;
    if (rest.size() < 4) break;
    std::memcpy(&size, rest.data(), 4);
    if (rest.size() - 4 < size) break;
    rest = rest.subspan(4 + size_t(size));
  }
  if (count > 0 || !rest.empty())
    bad(
        fmt::format("BYTES of input {} do not hold as many elements as its shape says, each with a "
                    "4-byte length",
                    shown(input)));
}

Blob from_raw(std::string_view input, DataType type, std::vector<int64_t> shape, Body data) {
  const int64_t count = element_count(shape);
  const size_t size = item_size(type);
  if (type == DataType::bytes) {
    check_bytes(input, data.bytes, count);
  } else if (data.bytes.size() % size != 0 || data.bytes.size() / size != size_t(count)) {
    fail(ErrorCode::shape_mismatch,
         fmt::format(
             "request: input {} has {} raw bytes, but shape {} of {} is {} elements of {} bytes",
             shown(input), data.bytes.size(), shown(shape), name(type), count, size));
  }
  if (type == DataType::boolean &&
      !std::ranges::all_of(data.bytes, [](std::byte b) { return uint8_t(b) <= 1; }))
    bad(fmt::format("BOOL input {} has bytes other than 0 and 1", shown(input)));
  if (size > 1 && reinterpret_cast<uintptr_t>(data.bytes.data()) % size != 0) {
    // Only a tensor after an odd-sized one lands here: the body is laid out so that the first is
    // aligned.
    std::shared_ptr<std::byte[]> copy(new std::byte[data.bytes.size()]);
    std::ranges::copy(data.bytes, copy.get());
    data = {{copy.get(), data.bytes.size()}, copy};
  }
  return {type, std::move(shape), data.bytes, std::move(data.owner)};
}

bool encoded_picture(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.starts_with("\xFF\xD8\xFF") || text.starts_with("\x89PNG\r\n\x1A\n");
}

InferRequest parse_raw(const ModelInfo& info, const Body& body, const InferHeaders& headers) {
  if (info.inputs.size() != 1)
    bad(fmt::format("a raw body needs a model with one input, {} has {}", shown(info.name),
                    info.inputs.size()));
  const TensorInfo& input = info.inputs[0];
  const bool image = headers.content_type.starts_with("image/");
  if (image && !input.picture && input.datatype != DataType::bytes)
    bad(fmt::format("model {} takes no encoded pictures", shown(info.name)));
  InferRequest request;
  const bool json = image || headers.accept.starts_with("application/json");
  for (size_t i = 0; i < info.outputs.size(); ++i)
    request.outputs.push_back({.index = i, .binary = !json});

  if (input.datatype == DataType::bytes ||
      (input.picture && (image || encoded_picture(body.bytes)))) {
    const std::string element(reinterpret_cast<const char*>(body.bytes.data()), body.bytes.size());
    request.inputs.push_back(bytes_blob({1}, {&element, 1}));
    check_input(info, input.name, DataType::bytes, request.inputs[0].shape);
    return request;
  }
  // The one free dimension follows from the size; a batch beside another free one is a batch of 1.
  std::vector<int64_t> shape = input.shape;
  if (info.max_batch > 0 && std::ranges::count(shape, -1) > 1) shape[0] = 1;
  const auto free = std::ranges::find(shape, -1);
  if (std::ranges::count(shape, -1) > 1)
    bad(fmt::format("a raw body does not say which shape {} is", shown(input.shape)));
  if (free != shape.end()) {
    *free = 1;
    const int64_t fixed = element_count(shape);
    *free = fixed > 0 ? int64_t(body.bytes.size() / item_size(input.datatype)) / fixed : 0;
  }
  check_input(info, input.name, input.datatype, shape);
  request.inputs.push_back(from_raw(input.name, input.datatype, std::move(shape), body));
  return request;
}

// ---- the JSON header ----------------------------------------------------------------------------

std::string read_string(JsonReader& json) {
  std::string text;
  json.string(text);
  return text;
}

// Some clients write null for what they leave out.
bool take_null(JsonReader& json) { return json.peek() == 'n' && !json.skip().empty(); }

struct InputText {
  std::string name, datatype;
  std::optional<std::vector<int64_t>> shape;
  std::optional<std::string_view> data;
  std::optional<uint64_t> binary_size;
};

void no_shared_memory(std::string_view key) {
  if (key.starts_with("shared_memory_"))
    fail(ErrorCode::unsupported, "request: shared memory regions are not supported",
         "Send the tensor as binary data");
}

InputText read_input(JsonReader& json) {
  InputText input;
  json.object([&](std::string_view key) {
    if (key == "name") {
      input.name = read_string(json);
    } else if (key == "datatype") {
      input.datatype = read_string(json);
    } else if (key == "shape") {
      input.shape.emplace();
      json.array([&] {
        if (input.shape->size() == 16) json.error("shape of more than 16 dimensions");
        input.shape->push_back(json.integer());
      });
    } else if (key == "data" && json.peek() != 'n') {
      input.data = json.skip();
    } else if (key == "parameters" && json.peek() != 'n') {
      json.object([&](std::string_view parameter) {
        no_shared_memory(parameter);
        if (parameter == "binary_data_size")
          input.binary_size = json.unsigned_integer();
        else
          json.skip();
      });
    } else {
      json.skip();
    }
  });
  if (input.name.empty()) bad("an input has no 'name'");
  if (input.datatype.empty()) bad(fmt::format("input {} has no 'datatype'", shown(input.name)));
  if (!input.shape) bad(fmt::format("input {} has no 'shape'", shown(input.name)));
  if (input.data.has_value() == input.binary_size.has_value())
    bad(
        fmt::format("input {} must set only one of the following fields: 'data', "
                    "'binary_data_size'; it sets {}",
                    shown(input.name), input.data ? "both" : "neither"));
  return input;
}

struct OutputText {
  std::string name;
  std::optional<bool> binary;
  int64_t classes = 0;
};

OutputText read_output(JsonReader& json) {
  OutputText output;
  json.object([&](std::string_view key) {
    if (key == "name") {
      output.name = read_string(json);
    } else if (key == "parameters" && json.peek() != 'n') {
      json.object([&](std::string_view parameter) {
        no_shared_memory(parameter);
        if (parameter == "binary_data")
          output.binary = json.boolean();
        else if (parameter == "classification")
          output.classes = std::min<uint64_t>(json.unsigned_integer(), INT32_MAX);
        else
          json.skip();
      });
    } else {
      json.skip();
    }
  });
  if (output.name.empty()) bad("an output has no 'name'");
  return output;
}

void want_output(const ModelInfo& info, std::vector<WantedOutput>& wanted, const OutputText& text,
                 bool binary) {
  const size_t index = check_output_name(info, text.name);
  if (std::ranges::count(wanted, index, &WantedOutput::index))
    bad(fmt::format("output {} is asked for twice", shown(text.name)));
  if (text.classes > 0 &&
      (info.outputs[index].datatype == DataType::bytes || info.outputs[index].shape.empty()))
    bad(fmt::format("output {} has no classes", shown(text.name)));
  wanted.push_back({index, text.binary.value_or(binary), text.classes});
}

// ---- outputs → answer ---------------------------------------------------------------------------

template <class T>
void append_number(std::string& out, T value) {
  if constexpr (kSixteenBit<T>) {
    append_number(out, to_float(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    out += value ? "true" : "false";
  } else {
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) {  // bare tokens would not be JSON
        out += std::isnan(value) ? "\"NaN\"" : value < 0 ? "\"-Infinity\"" : "\"Infinity\"";
        return;
      }
    }
    char digits[32];  // the shortest text that reads back as the same number
    out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  }
}

void append_data(std::string& json, std::string_view output, const Blob& blob) {
  json += '[';
  if (blob.datatype == DataType::bytes) {
    for (const std::string_view element : strings(blob)) {
      if (!is_utf8(element))
        bad(fmt::format("output {} has BYTES that are not UTF-8 text and so cannot be JSON",
                        shown(output)),
            "Ask for it with binary_data");
      append_json_string(json, element);
      json += ',';
    }
  } else {
    visit(blob.datatype, [&](auto tag) {
      for (const auto value : blob.as<decltype(tag)>()) append_number(json, value), json += ',';
    });
  }
  if (json.back() == ',') json.pop_back();
  json += ']';
}

template <class T>
double as_double(T value) {
  if constexpr (kSixteenBit<T>)
    return to_float(value);
  else
    return double(value);
}

// The classification extension: the n highest entries of each batch element as
// "value:index[:label]".
Blob classify(const TensorInfo& info, const Blob& scores, int64_t n) {
  const bool batched = scores.shape.size() > 1;
  const int64_t batch = batched ? scores.shape[0] : 1;
  const int64_t classes = element_count(std::span(scores.shape).subspan(batched ? 1 : 0));
  n = std::min(n, classes);
  std::vector<std::string> rows;
  visit(scores.datatype, [&](auto tag) {
    const auto values = scores.as<decltype(tag)>();
    std::vector<int64_t> order(static_cast<size_t>(classes));
    for (int64_t b = 0; b < batch; ++b) {
      const auto row = values.subspan(size_t(b * classes), size_t(classes));
      const auto rank = [&](int64_t i) {
        const double v = as_double(row[size_t(i)]);
        return std::isnan(v) ? -std::numeric_limits<double>::infinity() : v;
      };
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + n, order.end(), [&](int64_t i, int64_t j) {
        const double a = rank(i), b = rank(j);
        return a > b || (a == b && i < j);
      });
      for (int64_t k = 0; k < n; ++k) {
        const size_t i = size_t(order[size_t(k)]);
        std::string text;
        append_number(text, row[i]);
        std::erase(text, '"');
        text += fmt::format(":{}", i);
        if (i < info.labels.size()) text += ":" + info.labels[i];
        rows.push_back(std::move(text));
      }
    }
  });
  return bytes_blob(batched ? std::vector<int64_t>{batch, n} : std::vector<int64_t>{n}, rows);
}

std::string dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

InferRequest parse_infer(const ModelInfo& info, const Body& body, const InferHeaders& headers) {
  CAIRN_CHECK(body.owner != nullptr, "serve: a body without an owner");
  size_t json_size = body.bytes.size();
  if (!headers.json_size.empty()) {
    const char* const end = headers.json_size.data() + headers.json_size.size();
    const auto [stop, ec] = std::from_chars(headers.json_size.data(), end, json_size);
    if (ec != std::errc() || stop != end || json_size > body.bytes.size())
      bad(fmt::format(
          "Inference-Header-Content-Length must be a number of at most {}, the body's size, got {}",
          body.bytes.size(), shown(headers.json_size)));
  }
  if (headers.content_type.starts_with("image/") || (!headers.json_size.empty() && json_size == 0))
    return parse_raw(info, body, headers);

  const std::string_view text(reinterpret_cast<const char*>(body.bytes.data()), json_size);
  if (!is_utf8(text)) fail(ErrorCode::parse, "request: the JSON is not UTF-8");
  std::span<const std::byte> rest = body.bytes.subspan(json_size);

  InferRequest request;
  request.inputs.resize(info.inputs.size());
  std::vector<OutputText> outputs;
  bool all_binary = false;
  JsonReader json(text);
  json.object([&](std::string_view key) {
    if (take_null(json)) return;
    if (key == "id") {
      request.id = read_string(json);
    } else if (key == "inputs") {
      json.array([&] {
        InputText input = read_input(json);
        const auto type = datatype(input.datatype);
        if (!type)
          fail(ErrorCode::dtype_unsupported,
               fmt::format("request: input {} has unknown datatype {}", shown(input.name),
                           shown(input.datatype)));
        Blob& blob = request.inputs[check_input(info, input.name, *type, *input.shape)];
        if (blob.owner) bad(fmt::format("input {} is given twice", shown(input.name)));
        if (input.data) {
          blob = from_json(input.name, *type, std::move(*input.shape), *input.data);
        } else {
          if (*input.binary_size > rest.size())
            bad(fmt::format(
                "input {} has binary_data_size {}, but only {} bytes are left in the body",
                shown(input.name), *input.binary_size, rest.size()));
          blob = from_raw(input.name, *type, std::move(*input.shape),
                          {rest.first(*input.binary_size), body.owner});
          rest = rest.subspan(*input.binary_size);
        }
      });
    } else if (key == "outputs") {
      json.array([&] {
        if (outputs.size() == info.outputs.size())
          bad(fmt::format("more outputs are asked for than model {} has", shown(info.name)));
        outputs.push_back(read_output(json));
      });
    } else if (key == "parameters") {
      json.object([&](std::string_view parameter) {
        if (parameter == "binary_data_output")
          all_binary = json.boolean();
        else if (parameter == "timeout")
          request.timeout = std::chrono::microseconds(
              std::min<uint64_t>(json.unsigned_integer(), INT64_MAX / 2000));
        else
          json.skip();
      });
    } else {
      json.skip();  // clients add keys of their own
    }
  });
  json.end();
  if (!rest.empty())
    bad(fmt::format("unexpected additional input data for model: {} bytes", rest.size()));
  check_complete(info, request.inputs);
  for (const OutputText& output : outputs) want_output(info, request.outputs, output, all_binary);
  if (outputs.empty())
    for (size_t i = 0; i < info.outputs.size(); ++i)
      request.outputs.push_back({.index = i, .binary = all_binary});
  return request;
}

InferAnswer write_infer(const ModelInfo& info, const InferRequest& request,
                        std::span<const Blob> outputs) {
  InferAnswer answer;
  std::string& json = answer.json;
  json += '{';
  if (!request.id.empty()) {
    json += "\"id\":";
    append_json_string(json, request.id);
    json += ',';
  }
  json += "\"model_name\":";
  append_json_string(json, info.name);
  json += fmt::format(",\"model_version\":\"{}\",\"outputs\":[", info.version);
  for (const WantedOutput& wanted : request.outputs) {
    const TensorInfo& output = info.outputs[wanted.index];
    const Blob blob = wanted.classes > 0 ? classify(output, outputs[wanted.index], wanted.classes)
                                         : outputs[wanted.index];
    if (json.back() != '[') json += ',';
    json += "{\"name\":";
    append_json_string(json, output.name);
    json += fmt::format(",\"datatype\":\"{}\",\"shape\":[{}]", name(blob.datatype),
                        fmt::join(blob.shape, ","));
    if (wanted.binary) {
      json += fmt::format(",\"parameters\":{{\"binary_data_size\":{}}}", blob.bytes.size());
      answer.binary.push_back(blob);
    } else {
      json += ",\"data\":";
      append_data(json, output.name, blob);
    }
    json += '}';
  }
  json += "]}";
  return answer;
}

std::string metadata_json(const ModelInfo& info, std::span<const std::string> versions) {
  const auto tensors = [](const std::vector<TensorInfo>& all) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const TensorInfo& t : all)
      list.push_back({{"name", t.name}, {"datatype", name(t.datatype)}, {"shape", t.shape}});
    return list;
  };
  return dump({{"name", info.name},
               {"versions", std::vector<std::string>(versions.begin(), versions.end())},
               {"platform", info.platform},
               {"inputs", tensors(info.inputs)},
               {"outputs", tensors(info.outputs)}});
}

std::string config_json(const ModelInfo& info) {
  const auto tensors = [&](const std::vector<TensorInfo>& all) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const TensorInfo& t : all) {
      const auto dims = std::span(t.shape).subspan(info.max_batch > 0 ? 1 : 0);
      const std::string type =
          t.datatype == DataType::bytes ? "STRING" : std::string(name(t.datatype));
      list.push_back({{"name", t.name},
                      {"data_type", "TYPE_" + type},
                      {"dims", std::vector<int64_t>(dims.begin(), dims.end())}});
    }
    return list;
  };
  return dump({{"name", info.name},
               {"platform", info.platform},
               {"backend", "cairn"},
               {"max_batch_size", std::max<int64_t>(info.max_batch, 0)},
               {"input", tensors(info.inputs)},
               {"output", tensors(info.outputs)}});
}

std::string error_json(std::string_view message) { return dump({{"error", message}}); }

}  // namespace cairn::serve
