// SPDX-License-Identifier: Apache-2.0
// folder or list → records (bytes, label): finds the pictures of class folders or of a CSV list. A record holds
// the path of its bytes, which the loader reads, its label and its key.
#pragma once
#include <cairn/data.h>

#include <string>
#include <string_view>
#include <vector>

namespace cairn::data {

// What a source holds. Every item found is a record or an entry of the report, never both.
struct Listing {
  std::vector<std::string> classes;
  std::vector<Record> records;  // folders: in byte order of the key; lists: in order of their lines
  Report report;
};

// A list of a folder's pictures that may lie in it, beside the class folders.
inline constexpr std::string_view kListName = "labels.csv";

// Both read names only, no pictures. The order does not depend on the file system or the locale.
Listing list_folder(const std::string& folder, const ListOptions& options = {});
Listing list_csv(const std::string& file, const ListOptions& options = {});

// A row of a CSV text by RFC 4180: commas, "quotes" with "" for a quote, line ends LF or CRLF; also a
// byte order mark, blank lines and a last line without end. throws parse, naming the line.
struct CsvRow {
  int64_t line = 0;  // where it begins, from 1
  std::vector<std::string> fields;
};
std::vector<CsvRow> parse_csv(std::string_view text);

}  // namespace cairn::data
