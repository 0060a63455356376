// SPDX-License-Identifier: Apache-2.0
// Text tables for terminals: aligned columns, whatever the script of the cells.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace cairn::inspect {

// How many terminal columns a UTF-8 text takes: combining marks none, East Asian wide letters and
// emoji two. Bytes that are not UTF-8 count as they are shown, "\xNN".
int text_width(std::string_view text);

//   class        precision  recall
//   ──────────────────────────────
//   defective        0.812   0.790
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns. Control characters are shown escaped.
  Table& row(std::vector<std::string> cells);
  Table& rule();  // a line across, as before a row of totals
  // The table, each line ended by a newline, without blanks at the end of lines.
  std::string str() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // a rule is a row without cells
};

}  // namespace cairn::inspect
