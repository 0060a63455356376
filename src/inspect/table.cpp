// SPDX-License-Identifier: Apache-2.0
#include "inspect/table.h"

#include <cairn/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/file.h"

namespace cairn::inspect {
namespace {

struct Range {
  char32_t first, last;
};
// The main blocks of Unicode 15's combining marks and zero-width characters, and of wide
// characters.
constexpr Range kZero[] = {
    {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x0610, 0x061A}, {0x064B, 0x065F},
    {0x0900, 0x0902}, {0x093C, 0x093C}, {0x0941, 0x0948}, {0x0E31, 0x0E31}, {0x0E34, 0x0E3A},
    {0x0E47, 0x0E4E}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200F}, {0x2060, 0x2064},
    {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}, {0xE0100, 0xE01EF}};
constexpr Range kWide[] = {{0x1100, 0x115F},   {0x231A, 0x231B},   {0x2E80, 0x303E},
                           {0x3041, 0x33FF},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},
                           {0xA000, 0xA4CF},   {0xA960, 0xA97F},   {0xAC00, 0xD7A3},
                           {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                           {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF},
                           {0x1F900, 0x1F9FF}, {0x1FA70, 0x1FAFF}, {0x20000, 0x3FFFD}};

template <size_t N>
bool within(const Range (&ranges)[N], char32_t c) {
  const auto at = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                   [](char32_t v, const Range& r) { return v < r.first; });
  return at != std::begin(ranges) && c <= std::prev(at)->last;
}

}  // namespace

int text_width(std::string_view text) {
  const std::string safe = printable(text);  // valid UTF-8
  int width = 0;
  for (size_t i = 0; i < safe.size();) {
    const auto lead = uint8_t(safe[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    char32_t c = length == 1 ? lead : lead & (0x7F >> length);
    for (size_t k = 1; k < length && i + k < safe.size(); ++k)
      c = c << 6 | (uint8_t(safe[i + k]) & 0x3F);
    width += within(kZero, c) ? 0 : within(kWide, c) ? 2 : 1;
    i += length;
  }
  return width;
}

Table& Table::row(std::vector<std::string> cells) {
  CAIRN_CHECK(cells.size() == columns_.size() && !cells.empty());
  for (auto& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
  return *this;
}

Table& Table::rule() {
  rows_.emplace_back();
  return *this;
}

std::string Table::str() const {
  constexpr int kGap = 2;
  std::vector<int> widths;
  int total = -kGap;
  for (size_t c = 0; c < columns_.size(); ++c) {
    int width = text_width(columns_[c].title);
    for (const auto& row : rows_)
      if (!row.empty()) width = std::max(width, text_width(row[c]));
    widths.push_back(width);
    total += width + kGap;
  }

  std::string out;
  const auto add_rule = [&] {
    for (int i = 0; i < total; ++i) out += "─";
    out += '\n';
  };
  const auto add_row = [&](auto&& cell) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string text = cell(c), blanks(size_t(widths[c] - text_width(text)), ' ');
      if (c > 0) line.append(kGap, ' ');
      line += columns_[c].align == Align::left ? text + blanks : blanks + text;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  add_row([&](size_t c) { return printable(columns_[c].title); });
  add_rule();
  for (const auto& row : rows_)
    if (row.empty())
      add_rule();
    else
      add_row([&](size_t c) { return row[c]; });
  return out;
}

}  // namespace cairn::inspect
