// SPDX-License-Identifier: Apache-2.0
#include <cairn/extend/params.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/random.h"

namespace cairn {

std::string to_string(const ParamValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>) return v ? "true" : "false";
        else if constexpr (std::is_same_v<T, int64_t>) return std::to_string(v);
        else if constexpr (std::is_same_v<T, double>) {
          std::string text = fmt::format("{}", v);  // shortest that reads back
          return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
        } else if constexpr (std::is_same_v<T, std::string>) {
          std::string out = "\"";
          for (char c : v) {
            if (c == '"' || c == '\\') out += '\\';
            out += c;
          }
          return out + '"';
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) return fmt::format("[{}]", fmt::join(v, ","));
        else if constexpr (std::is_same_v<T, DType>) return std::string(name(v));
        else return v ? fmt::format("@{}", fmt::ptr(v.get())) : "@none";  // the printer writes graphs itself
      },
      value);
}

std::string Params::to_string() const {
  const NamedValues list = values();
  std::string out;
  for (const auto& [name, value] : list)
    out += (out.empty() ? "{" : ", ") + name + "=" + cairn::to_string(value);
  return out.empty() ? out : out + "}";
}

bool Params::operator==(const Params& other) const {
  if (type_->type != other.type_->type) return false;
  if (data_ == other.data_) return true;
  const auto a = values(), b = other.values();
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].value != b[i].value) return false;
  return true;
}

uint64_t Params::hash() const { return cairn::hash(to_string()); }

void detail::wrong_param(std::string_view op, std::string_view field, const ParamValue& got,
                         std::string_view expected) {
  fail(ErrorCode::invalid_argument,
       fmt::format("{}: parameter {}: got {}, expected {}", op, field, to_string(got), expected));
}

void detail::unknown_param(std::string_view op, std::string_view name) {
  fail(ErrorCode::invalid_argument, fmt::format("{}: has no parameter '{}'", op, name));
}

}  // namespace cairn
