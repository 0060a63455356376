// SPDX-License-Identifier: Apache-2.0
// The text form "name:key=value,key=value" of optimisers, schedules, losses and loss scales.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn::train {

// Reads a text form: take the keys that are known, then finish(), which refuses what is left.
class TextForm {
 public:
  TextForm(std::string_view what, std::string_view text);  // `what` begins messages; throws parse
  const std::string& name() const { return name_; }
  std::optional<double> number(std::string_view key);
  std::optional<bool> flag(std::string_view key);
  std::optional<std::string> word(std::string_view key);
  void number(std::string_view key, double& to) { to = number(key).value_or(to); }
  [[noreturn]] void unknown_name(std::string_view known) const;
  void finish() const;

 private:
  std::string what_, name_;
  std::vector<std::pair<std::string, std::string>> values_;
  std::vector<std::string> asked_;
};

// Writes one; numbers are the shortest that read back exactly.
class TextFormWriter {
 public:
  explicit TextFormWriter(std::string name) : text_(std::move(name)) {}
  TextFormWriter& word(std::string_view key, std::string_view value);
  TextFormWriter& number(std::string_view key, double value);
  TextFormWriter& flag(std::string_view key, bool value) {
    return word(key, value ? "true" : "false");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool first_ = true;
};

}  // namespace cairn::train
