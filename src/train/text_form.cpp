// SPDX-License-Identifier: Apache-2.0
#include "train/text_form.h"

#include <cairn/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace cairn::train {
namespace {

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

}  // namespace

TextForm::TextForm(std::string_view what, std::string_view text) : what_(what) {
  const auto colon = text.find(':');
  name_ = trimmed(text.substr(0, colon));
  if (name_.empty()) fail(ErrorCode::parse, fmt::format("{}: got an empty text", what_));
  if (colon == std::string_view::npos) return;
  std::string_view rest = text.substr(colon + 1);
  while (true) {
    const auto comma = rest.find(',');
    const std::string_view item = trimmed(rest.substr(0, comma));
    const auto equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size())
      fail(ErrorCode::parse,
           fmt::format("{}: got \"{}\" in \"{}\", expected key=value", what_, item, text));
    std::string key(trimmed(item.substr(0, equals)));
    for (const auto& [k, v] : values_)
      if (k == key)
        fail(ErrorCode::parse, fmt::format("{}: \"{}\" gives {} twice", what_, text, key));
    values_.emplace_back(std::move(key), trimmed(item.substr(equals + 1)));
    if (comma == std::string_view::npos) return;
    rest.remove_prefix(comma + 1);
  }
}

std::optional<std::string> TextForm::word(std::string_view key) {
  asked_.emplace_back(key);
  const auto it =
      std::find_if(values_.begin(), values_.end(), [&](const auto& kv) { return kv.first == key; });
  if (it == values_.end()) return std::nullopt;
  std::string value = std::move(it->second);
  values_.erase(it);
  return value;
}

std::optional<double> TextForm::number(std::string_view key) {
  const auto text = word(key);
  if (!text) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || !std::isfinite(value))
    fail(ErrorCode::parse, fmt::format("{}: {}: got \"{}\", expected a number", what_, key, *text));
  return value;
}

std::optional<bool> TextForm::flag(std::string_view key) {
  const auto text = word(key);
  if (!text) return std::nullopt;
  if (*text == "true" || *text == "1") return true;
  if (*text == "false" || *text == "0") return false;
  fail(ErrorCode::parse,
       fmt::format("{}: {}: got \"{}\", expected true or false", what_, key, *text));
}

void TextForm::unknown_name(std::string_view known) const {
  fail(ErrorCode::not_found, fmt::format("{}: there is no \"{}\"", what_, name_),
       fmt::format("There are: {}", known));
}

void TextForm::finish() const {
  if (values_.empty()) return;
  fail(ErrorCode::invalid_argument,
       fmt::format("{}: {} has no \"{}\"", what_, name_, values_[0].first),
       asked_.empty() ? "It takes nothing" : fmt::format("It takes: {}", fmt::join(asked_, ", ")));
}

TextFormWriter& TextFormWriter::word(std::string_view key, std::string_view value) {
  text_ += fmt::format("{}{}={}", first_ ? ':' : ',', key, value);
  first_ = false;
  return *this;
}
TextFormWriter& TextFormWriter::number(std::string_view key, double value) {
  return word(key, fmt::format("{}", value));
}

}  // namespace cairn::train
