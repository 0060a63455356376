// SPDX-License-Identifier: Apache-2.0
#include "ops/factors.h"

#include <fmt/format.h>

#include <algorithm>

namespace cairn::ops {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  FactorRule parse(Types in, Types out) {
    const size_t arrow = text_.find("->");
    check(arrow != text_.npos, "has no '->'");
    operands(text_.substr(0, arrow), in, rule_.inputs);
    std::vector<char> given(rule_.factors.size(), 1);
    operands(text_.substr(arrow + 2), out, rule_.outputs);
    given.resize(rule_.factors.size(), 0);
    for (size_t f = 0; f < given.size(); ++f)
      check(given[f] || rule_.factors[f].whole,
            fmt::format("splits '{}', which no input has", rule_.factors[f].name));
    for (const auto* side : {&rule_.inputs, &rule_.outputs})
      for (const auto& operand : *side)
        for (int f : operand)
          check(f == FactorRule::kOne || rule_.factors[size_t(f)].whole ||
                    std::ranges::count(operand, f) == 1,
                "names a dimension twice in one operand");
    return std::move(rule_);
  }

 private:
  void check(bool good, std::string_view what) const {
    CAIRN_CHECK(good, fmt::format("factors \"{}\": {}", text_, what));
  }

  void operands(std::string_view side, Types types, std::vector<std::vector<int>>& to) {
    size_t at = 0;
    for (size_t k = 0; k < types.size(); ++k) {
      check(at <= side.size(), fmt::format("has fewer operands than the call, {}", types.size()));
      const size_t comma = std::min(side.find(',', at), side.size());
      to.push_back(operand(side.substr(at, comma - at), types[k]));
      at = comma + 1;
    }
    check(at > side.size() || side.substr(at).find_first_not_of(' ') == side.npos,
          fmt::format("has more operands than the call, {}", types.size()));
  }

  std::vector<int> operand(std::string_view group, const TensorType& type) {
    std::vector<int> axes;
    size_t at = 0;
    while ((at = group.find_first_not_of(' ', at)) < group.size()) {
      const size_t end = std::min(group.find(' ', at), group.size());
      check(int(axes.size()) < type.shape.rank(),
            fmt::format("names more axes than {} has", to_string(type)));
      axes.push_back(dimension(group.substr(at, end - at), type.shape[int(axes.size())]));
      at = end;
    }
    check(int(axes.size()) == type.shape.rank(),
          fmt::format("names fewer axes than {} has", to_string(type)));
    return axes;
  }

  int dimension(std::string_view word, int64_t length) {
    if (word == "1") {
      check(length == 1, fmt::format("has '1' for an axis of length {}", length));
      return FactorRule::kOne;
    }
    const size_t mark = std::min(word.find_first_of("!^"), word.size());
    const std::string_view name = word.substr(0, mark), suffix = word.substr(mark);
    auto found = std::ranges::find(rule_.factors, name, &Factor::name);
    if (found == rule_.factors.end()) {
      rule_.factors.push_back({std::string(name), false, Combine::sum, length});
      found = rule_.factors.end() - 1;
    }
    if (suffix == "!")
      found->whole = true;
    else if (suffix == "^max")
      found->combine = Combine::max;
    else if (suffix == "^min")
      found->combine = Combine::min;
    else if (suffix == "^prod")
      found->combine = Combine::prod;
    else
      check(suffix.empty(), fmt::format("has the unknown mark '{}'", suffix));
    check(found->whole || found->length == length,
          fmt::format("gives '{}' two lengths, {} and {}", name, found->length, length));
    return int(found - rule_.factors.begin());
  }

  std::string_view text_;
  FactorRule rule_;
};

}  // namespace

int FactorRule::axis_of(const std::vector<int>& operand, int factor) {
  const auto it = std::ranges::find(operand, factor);
  return it == operand.end() ? -1 : int(it - operand.begin());
}

FactorRule parse_factors(std::string_view text, Types in, Types out) {
  return Parser(text).parse(in, out);
}

}  // namespace cairn::ops
