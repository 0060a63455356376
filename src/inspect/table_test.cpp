// SPDX-License-Identifier: Apache-2.0
#include "inspect/table.h"

#include <gtest/gtest.h>

namespace cairn::inspect {
namespace {

using Align = Table::Align;

TEST(Table, AlignsColumnsAndKeepsNoBlanksAtTheEnd) {
  const Table table = Table({{"class"}, {"recall", Align::right}, {"note"}})
                          .row({"defective", "0.79", ""})
                          .row({"ok", "0.9125", "x"})
                          .rule()
                          .row({"all", "1", "y"});
  EXPECT_EQ(table.str(),
            "class      recall  note\n"
            "───────────────────────\n"
            "defective    0.79\n"
            "ok         0.9125  x\n"
            "───────────────────────\n"
            "all             1  y\n");
}

TEST(Table, CountsWideLettersTwiceAndCombiningMarksNotAtAll) {
  EXPECT_EQ(text_width("abc"), 3);
  EXPECT_EQ(text_width("größer"), 6);
  EXPECT_EQ(text_width("e\u0301"), 1);  // e and a combining acute
  EXPECT_EQ(text_width("裂纹"), 4);
  EXPECT_EQ(text_width("ひび"), 4);
  EXPECT_EQ(text_width("🙂"), 2);
  EXPECT_EQ(Table({{"名"}, {"n", Align::right}}).row({"裂纹", "1"}).row({"ok", "22"}).str(),
            "名     n\n"
            "────────\n"
            "裂纹   1\n"
            "ok    22\n");
}

TEST(Table, ShowsControlCharactersAndBadBytesEscaped) {
  EXPECT_EQ(text_width("a\xff"), 5);
  EXPECT_EQ(Table({{"file"}}).row({"a\nb\x1b[2J\xff"}).str(),
            "file\n"
            "─────────────────\n"
            "a\\x0ab\\x1b[2J\\xff\n");
}

}  // namespace
}  // namespace cairn::inspect
