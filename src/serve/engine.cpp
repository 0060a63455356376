// SPDX-License-Identifier: Apache-2.0
// Datatypes, tensors between network and model, and the checks around Model::infer.
#include "serve/engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace cairn::serve {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors go to the network as they lie in memory");

struct TypeFacts {
  std::string_view name;
  size_t size;
};
constexpr std::array<TypeFacts, 14> kTypes{{{"BOOL", 1},
                                            {"UINT8", 1},
                                            {"UINT16", 2},
                                            {"UINT32", 4},
                                            {"UINT64", 8},
                                            {"INT8", 1},
                                            {"INT16", 2},
                                            {"INT32", 4},
                                            {"INT64", 8},
                                            {"FP16", 2},
                                            {"BF16", 2},
                                            {"FP32", 4},
                                            {"FP64", 8},
                                            {"BYTES", 0}}};

bool fits(std::span<const int64_t> declared, std::span<const int64_t> shape) {
  return std::ranges::equal(declared, shape, [](int64_t want, int64_t got) {
    return want == got || (want < 0 && got >= 0);
  });
}

std::string names(const std::vector<TensorInfo>& tensors) {
  std::vector<std::string_view> all;
  for (const TensorInfo& t : tensors) all.push_back(t.name);
  return fmt::format("{}", fmt::join(all, ", "));
}

size_t index_of(const std::vector<TensorInfo>& tensors, std::string_view name) {
  return std::ranges::find(tensors, name, &TensorInfo::name) - tensors.begin();
}

}  // namespace

std::string_view name(DataType type) { return kTypes.at(size_t(type)).name; }
size_t item_size(DataType type) { return kTypes.at(size_t(type)).size; }

std::optional<DataType> datatype(std::string_view name) {
  const auto found = std::ranges::find(kTypes, name, &TypeFacts::name);
  if (found == kTypes.end()) return std::nullopt;
  return DataType(found - kTypes.begin());
}

int64_t element_count(std::span<const int64_t> shape) {
  int64_t count = 1;
  bool overflow = false;
  for (const int64_t d : shape) {
    if (d < 0)
      fail(ErrorCode::shape_mismatch, "request: negative dimension in shape " + shown(shape));
    // A zero further on would hide an overflow, and is no reason to allow one.
    overflow |= __builtin_mul_overflow(count, std::max<int64_t>(d, 1), &count);
  }
  if (overflow)
    fail(ErrorCode::shape_mismatch, "request: too many elements in shape " + shown(shape));
  return std::ranges::count(shape, 0) ? 0 : count;
}

std::vector<std::string_view> strings(const Blob& blob) {
  CAIRN_CHECK(blob.datatype == DataType::bytes, "serve: strings() of a tensor that is not BYTES");
  std::vector<std::string_view> all;
  for (std::span<const std::byte> rest = blob.bytes; !rest.empty();) {
    uint32_t size = 0;
    CAIRN_CHECK(rest.size() >= 4, "serve: BYTES tensor cut off");
    std::memcpy(&size, rest.data(), 4);
    CAIRN_CHECK(rest.size() - 4 >= size, "serve: BYTES tensor cut off");
    all.emplace_back(reinterpret_cast<const char*>(rest.data()) + 4, size);
    rest = rest.subspan(4 + size_t(size));
  }
  return all;
}

Blob bytes_blob(std::vector<int64_t> shape, std::span<const std::string> elements) {
  CAIRN_CHECK(element_count(shape) == int64_t(elements.size()),
              "serve: BYTES elements do not fit the shape");
  auto text = std::make_shared<std::string>();
  for (const std::string& element : elements) {
    CAIRN_CHECK(element.size() <= UINT32_MAX, "serve: BYTES element of 4 GiB or more");
    const uint32_t size = uint32_t(element.size());
    text->append(reinterpret_cast<const char*>(&size), 4).append(element);
  }
  return {DataType::bytes, std::move(shape), std::as_bytes(std::span(*text)), text};
}

std::string shown(std::string_view name) {
  return fmt::format("'{}{}'", name.substr(0, 100), name.size() > 100 ? "..." : "");
}
std::string shown(std::span<const int64_t> shape) {
  const size_t n = std::min<size_t>(shape.size(), 16);
  return fmt::format("[{}{}]", fmt::join(shape.first(n), ","), n < shape.size() ? ",..." : "");
}

void check_info(const ModelInfo& info) {
  const auto require = [&](bool good, std::string_view what) {
    if (!good)
      fail(ErrorCode::invalid_argument,
           fmt::format("serve: model {} cannot be served: {}", shown(info.name), what));
  };
  require(!info.name.empty() && info.name.find('/') == std::string::npos,
          "its name is empty or has a '/'");
  require(!info.version.empty() && info.version.size() <= 18 &&
              info.version.find_first_not_of("0123456789") == std::string::npos,
          "its version must be a number, got " + shown(info.version));
  for (const auto* tensors : {&info.inputs, &info.outputs}) {
    require(!tensors->empty(), "it has no inputs or no outputs");
    for (const TensorInfo& t : *tensors) {
      require(!t.name.empty(), "a tensor has no name");
      require(std::ranges::count(*tensors, t.name, &TensorInfo::name) == 1,
              "two tensors are called " + shown(t.name));
      require(
          std::ranges::all_of(t.shape, [](int64_t d) { return d >= -1; }) && t.shape.size() <= 16,
          fmt::format("bad shape {} of {}", shown(t.shape), shown(t.name)));
      require(
          info.max_batch <= 0 || (!t.shape.empty() && t.shape[0] == -1),
          fmt::format("a model with max_batch has -1 as first dimension everywhere, got {} for {}",
                      shown(t.shape), shown(t.name)));
    }
  }
}

size_t check_input(const ModelInfo& info, std::string_view input, DataType datatype,
                   std::span<const int64_t> shape) {
  const size_t index = index_of(info.inputs, input);
  if (index == info.inputs.size())
    fail(ErrorCode::invalid_argument,
         fmt::format("request: unexpected inference input {} for model {}, which has {}",
                     shown(input), shown(info.name), names(info.inputs)));
  const TensorInfo& want = info.inputs[index];
  element_count(shape);  // no negative dimension, no overflow
  const int64_t any[] = {-1};
  const bool picture = want.picture && datatype == DataType::bytes;
  if (!picture && datatype != want.datatype)
    fail(ErrorCode::dtype_unsupported,
         fmt::format("request: inference input {} of model {} has data-type {}{}, got {}",
                     shown(input), shown(info.name), name(want.datatype),
                     want.picture ? " (or BYTES: encoded pictures)" : "", name(datatype)));
  if (!fits(picture ? std::span<const int64_t>(any) : want.shape, shape))
    fail(ErrorCode::shape_mismatch,
         fmt::format("request: unexpected shape for input {} for model {}. Expected {}, got {}",
                     shown(input), shown(info.name), picture ? "[-1]" : shown(want.shape),
                     shown(shape)));
  if (info.max_batch > 0 && shape[0] > info.max_batch)
    fail(ErrorCode::shape_mismatch,
         fmt::format("request: batch of {} in input {} is more than model {} takes: at most {}",
                     shape[0], shown(input), shown(info.name), info.max_batch),
         "Send it in smaller batches");
  return index;
}

size_t check_output_name(const ModelInfo& info, std::string_view output) {
  const size_t index = index_of(info.outputs, output);
  if (index == info.outputs.size())
    fail(ErrorCode::invalid_argument,
         fmt::format("request: unexpected inference output {} for model {}, which has {}",
                     shown(output), shown(info.name), names(info.outputs)));
  return index;
}

void check_complete(const ModelInfo& info, std::span<const Blob> inputs) {
  for (size_t i = 0; i < info.inputs.size(); ++i) {
    if (!inputs[i].owner)
      fail(ErrorCode::invalid_argument,
           fmt::format("request: expected {} inputs for model {}, missing {}", info.inputs.size(),
                       shown(info.name), shown(info.inputs[i].name)));
    if (info.max_batch > 0 && inputs[i].shape[0] != inputs[0].shape[0])
      fail(ErrorCode::shape_mismatch,
           fmt::format("request: input {} has batch {}, input {} has batch {}",
                       shown(info.inputs[i].name), inputs[i].shape[0], shown(info.inputs[0].name),
                       inputs[0].shape[0]));
  }
}

int64_t batch_of(const ModelInfo& info, std::span<const Blob> inputs) {
  return info.max_batch > 0 ? inputs[0].shape[0] : 1;
}

std::vector<Blob> run(Model& model, std::span<const Blob> inputs) {
  const ModelInfo& info = model.info();
  std::vector<Blob> outputs = model.infer(inputs);
  CAIRN_CHECK(outputs.size() == info.outputs.size(),
              "serve: the model gave the wrong number of outputs");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Blob& got = outputs[i];
    const TensorInfo& want = info.outputs[i];
    CAIRN_CHECK(
        got.datatype == want.datatype && fits(want.shape, got.shape),
        fmt::format("serve: the model gave {} {} for output {}, expected {} {}", name(got.datatype),
                    shown(got.shape), shown(want.name), name(want.datatype), shown(want.shape)));
    const size_t count = size_t(element_count(got.shape));
    CAIRN_CHECK(got.datatype == DataType::bytes
                    ? strings(got).size() == count
                    : got.bytes.size() == count * item_size(got.datatype),
                "serve: the model gave an output whose bytes do not fit its shape");
  }
  return outputs;
}

}  // namespace cairn::serve
