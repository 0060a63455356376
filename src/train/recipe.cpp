// SPDX-License-Identifier: Apache-2.0
// Recipes: what a run was made of, as YAML that people read and edit.
#include <cairn/train.h>
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/file.h"

namespace cairn::train {
namespace {

constexpr size_t kMaxFile = 4u << 20;
constexpr int kMaxDepth = 16;
constexpr size_t kMaxValues = 10000;

void flatten(const YAML::Node& node, const std::string& prefix, int depth, Recipe& out) {
  if (depth > kMaxDepth || out.values().size() > kMaxValues)
    fail(ErrorCode::parse,
         fmt::format("recipe: it is nested deeper than {} levels or has more than {} values",
                     kMaxDepth, kMaxValues));
  for (const auto& item : node) {
    if (!item.first.IsScalar())
      fail(ErrorCode::parse, fmt::format("recipe: a key below \"{}\" is not a word", prefix));
    const std::string key =
        prefix.empty() ? item.first.Scalar() : prefix + "." + item.first.Scalar();
    if (item.second.IsMap())
      flatten(item.second, key, depth + 1, out);
    else if (item.second.IsScalar())
      out.set(key, std::string_view(item.second.Scalar()));
    else if (item.second.IsNull())
      out.set(key, std::string_view(""));
    else
      fail(ErrorCode::parse, fmt::format("recipe: {}: got a list, expected a value", key));
  }
}

// Emits the values whose keys begin with `prefix`; groups appear where their first key stands.
void emit(YAML::Emitter& out, const std::vector<std::pair<std::string, std::string>>& values,
          const std::string& prefix) {
  out << YAML::BeginMap;
  std::vector<std::string> done;
  for (const auto& [key, value] : values) {
    if (!key.starts_with(prefix)) continue;
    const std::string rest = key.substr(prefix.size());
    const auto dot = rest.find('.');
    if (dot == std::string::npos) {
      out << YAML::Key << rest << YAML::Value << value;
      continue;
    }
    const std::string group = rest.substr(0, dot);
    if (std::find(done.begin(), done.end(), group) != done.end()) continue;
    done.push_back(group);
    out << YAML::Key << group << YAML::Value;
    emit(out, values, prefix + group + ".");
  }
  out << YAML::EndMap;
}

}  // namespace

const std::string* Recipe::find(std::string_view key) const {
  for (const auto& [k, v] : values_)
    if (k == key) return &v;
  return nullptr;
}

void Recipe::set(std::string_view key, std::string_view value) {
  if (!is_utf8(key) || !is_utf8(value))
    fail(ErrorCode::invalid_argument, fmt::format("recipe: {}: \"{}\" is not UTF-8 text",
                                                  printable(key), printable(value)),
         "Rename it");
  for (auto& [k, v] : values_) {
    if (k == key) return void(v = value);
    // A key is a value or a group of values, never both.
    const auto inside = [](std::string_view a, std::string_view b) {
      return a.size() > b.size() && a.starts_with(b) && a[b.size()] == '.';
    };
    if (inside(k, key) || inside(key, k))
      fail(ErrorCode::parse,
           fmt::format("recipe: {} stands beside {}, which would hold it", key, k));
  }
  if (key.empty() || key.front() == '.' || key.back() == '.' ||
      key.find("..") != std::string_view::npos)
    fail(ErrorCode::parse,
         fmt::format("recipe: got the key \"{}\", expected words joined by dots", key));
  values_.emplace_back(key, value);
}
void Recipe::set(std::string_view key, double value) {
  set(key, std::string_view(fmt::format("{}", value)));
}
void Recipe::set(std::string_view key, int64_t value) {
  set(key, std::string_view(fmt::format("{}", value)));
}

void Recipe::set_list(std::string_view key, const std::vector<std::string>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    set(fmt::format("{}.{}", key, i), std::string_view(values[i]));
}

std::vector<std::string> Recipe::list(std::string_view key) const {
  std::vector<std::string> out;
  while (const std::string* v = find(fmt::format("{}.{}", key, out.size()))) out.push_back(*v);
  return out;
}

bool Recipe::has(std::string_view key) const { return find(key) != nullptr; }

const std::string& Recipe::text(std::string_view key) const {
  if (const std::string* v = find(key)) return *v;
  fail(ErrorCode::not_found, fmt::format("recipe: it has no \"{}\"", key));
}

double Recipe::number(std::string_view key) const {
  const std::string& t = text(key);
  double value = 0;
  const auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), value);
  if (error != std::errc() || end != t.data() + t.size() || !std::isfinite(value))
    fail(ErrorCode::parse, fmt::format("recipe: {}: got \"{}\", expected a number", key, t));
  return value;
}

int64_t Recipe::integer(std::string_view key) const {
  const std::string& t = text(key);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), value);
  if (error != std::errc() || end != t.data() + t.size())
    fail(ErrorCode::parse, fmt::format("recipe: {}: got \"{}\", expected a whole number", key, t));
  return value;
}

bool Recipe::flag(std::string_view key) const {
  const std::string& t = text(key);
  if (t == "true") return true;
  if (t == "false") return false;
  fail(ErrorCode::parse, fmt::format("recipe: {}: got \"{}\", expected true or false", key, t));
}

std::string Recipe::yaml() const {
  YAML::Emitter out;
  emit(out, values_, "");
  return std::string(out.c_str()) + "\n";
}

Recipe Recipe::parse(std::string_view yaml) {
  Recipe out;
  try {
    const YAML::Node root = YAML::Load(std::string(yaml));
    if (!root.IsMap()) fail(ErrorCode::parse, "recipe: got no keys, expected \"key: value\" lines");
    flatten(root, "", 0, out);
  } catch (const YAML::Exception& e) {
    fail(ErrorCode::parse, fmt::format("recipe: line {}: {}", e.mark.line + 1, e.msg));
  }
  return out;
}

Recipe Recipe::read(const std::filesystem::path& file) {
  try {
    return parse(read_file(file, kMaxFile));
  } catch (Error& e) {
    throw e.add_frame(printable(file));
  }
}

}  // namespace cairn::train
