// SPDX-License-Identifier: Apache-2.0
// Weights in safetensors files: strict by default, so that half a model never loads in silence.
#include <cairn/nn.h>
#include <cairn/safetensors.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/file.h"

namespace cairn::nn {
namespace {

constexpr size_t kShown = 8;  // names that a message lists of each kind

std::string listed(const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string out = fmt::format(
      "\n  {} {}: {}", names.size(), what,
      fmt::join(names.begin(), names.begin() + int64_t(std::min(names.size(), kShown)), ", "));
  return names.size() > kShown ? out + ", …" : out;
}

// A copy of its own, of the wanted dtype: the file's map is read-only, and variables are written.
Tensor owned(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype) {
    const Tensor dense = t.dense();
    return Tensor::from_bytes(dense.type(), dense.bytes(), size_t(dense.type().bytes()));
  }
  return cast(t, dtype);
}

bool convertible(DType from, DType to) { return from == to || (is_float(from) && is_float(to)); }

}  // namespace

std::string LoadReport::summary() const {
  return fmt::format("{} loaded", loaded.size()) +
         listed("kept at their first values (reset)", reset) +
         listed("missing in the file", missing) + listed("unexpected in the file", unexpected) +
         listed("of another shape or type", mismatched);
}

LoadReport load_weights(Group& module, const std::filesystem::path& path,
                        const LoadOptions& options) {
  const SafetensorsFile file(path);
  const auto to_reset = [&](const std::string& name) {
    return std::any_of(options.reset.begin(), options.reset.end(), [&](const std::string& prefix) {
      return name.starts_with(prefix) &&
             (name.size() == prefix.size() || name[prefix.size()] == '.');
    });
  };
  LoadReport report;
  std::set<std::string, std::less<>> known;
  std::vector<std::pair<Variable, Tensor>> values;
  for (const Variable& v : module.variables()) {
    known.insert(v.name());
    if (!file.contains(v.name())) {
      if (v.name().ends_with("num_batches_tracked")) continue;  // older files lack it
      (to_reset(v.name()) ? report.reset : report.missing).push_back(v.name());
      continue;
    }
    const TensorType got = file.type(v.name());
    if (got.shape == v.type().shape && convertible(got.dtype, v.type().dtype)) {
      values.emplace_back(v, owned(file.tensor(v.name()), v.type().dtype));
      report.loaded.push_back(v.name());
    } else if (to_reset(v.name())) {
      report.reset.push_back(v.name());
    } else {
      report.mismatched.push_back(
          fmt::format("{} (got {}, expected {})", v.name(), to_string(got), to_string(v.type())));
    }
  }
  const bool checkpoint =
      file.metadata("cairn.state");  // then state of the training stands beside the weights
  for (const std::string& name : file.names())
    if (!known.contains(name) && !(checkpoint && name.find('/') != std::string::npos))
      report.unexpected.push_back(name);
  const bool fits =
      report.missing.empty() && report.unexpected.empty() && report.mismatched.empty();
  if (options.strict && !fits)
    fail(ErrorCode::invalid_argument,
         fmt::format("weights: {} does not fit the model: {}", printable(path), report.summary()),
         "Take the model (name, width, channels) that the file was made for");
  if (report.loaded.empty())
    fail(ErrorCode::invalid_argument, fmt::format("weights: nothing in {} fits the model: {}",
                                                  printable(path), report.summary()));
  for (auto& [variable, value] : values) variable.set_value(std::move(value));
  return report;
}

void save_weights(const Group& module, const std::filesystem::path& path) {
  NamedTensors tensors;
  for (const Variable& v : module.variables()) tensors.emplace_back(v.name(), v.value());
  write_safetensors(path, tensors, {{"format", "pt"}});
}

}  // namespace cairn::nn
