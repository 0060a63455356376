// SPDX-License-Identifier: Apache-2.0
// The list of models by name.
#include <fmt/format.h>

#include <algorithm>

#include "models/models.h"

namespace cairn::models {
namespace {

struct Entry {
  std::string_view name, head;
  std::unique_ptr<nn::Module> (*make)(const Options&);
};

template <int depth>
std::unique_ptr<nn::Module> resnet(const Options& o) {
  return make_resnet(depth, o);
}

constexpr Entry kEntries[] = {
    {"resnet18", "fc", resnet<18>},   {"resnet34", "fc", resnet<34>},
    {"resnet50", "fc", resnet<50>},   {"resnet101", "fc", resnet<101>},
    {"resnet152", "fc", resnet<152>}, {"mobilenet_v2", "classifier", make_mobilenet_v2},
    {"yolov5s_body", "fc", make_yolov5s_body}, {"yolov7_body", "fc", make_yolov7_body},
    {"lenet", "fc3", make_lenet},     {"mlp", "fc3", make_mlp},
};

const Entry& find(std::string_view name) {
  for (const Entry& e : kEntries)
    if (e.name == name) return e;
  fail(ErrorCode::not_found, fmt::format("model: there is no \"{}\"", name),
       fmt::format("There are: {}", fmt::join(names(), ", ")));
}

}  // namespace

int64_t scaled(double channels, double width) {
  const double wanted = channels * width;
  auto rounded = std::max<int64_t>(8, int64_t(wanted + 4) / 8 * 8);
  if (double(rounded) < 0.9 * wanted) rounded += 8;
  return rounded;
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const Entry& e : kEntries) out.emplace_back(e.name);
  return out;
}

std::unique_ptr<nn::Module> make(std::string_view name, const Options& o) {
  const Entry& entry = find(name);
  if (o.classes < 1 || o.in_channels < 1 || !(o.width > 0 && o.width <= 16) || o.input_size < 1)
    fail(ErrorCode::invalid_argument,
         fmt::format("model: {} with {} classes, {} input channels, width {}, input size {}: "
                     "expected 1 or more of "
                     "each, and 0 < width ≤ 16",
                     name, o.classes, o.in_channels, o.width, o.input_size));
  const nn::InitScope scope({.seed = o.seed, .dtype = o.dtype, .draw = o.draw});
  return entry.make(o);
}

std::string head(std::string_view name) { return std::string(find(name).head); }

}  // namespace cairn::models
