// SPDX-License-Identifier: Apache-2.0
// Feeds the CSV reader and the recipe parser: an Error, or text that prints and parses back the same.
#include <cstdlib>

#include "data/source.h"
#include "data/transform.h"

using namespace cairn;
using namespace cairn::data;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    int64_t line = 0;
    for (const CsvRow& row : parse_csv(text)) {
      if (row.line <= line || row.fields.empty()) std::abort();
      line = row.line;
    }
  } catch (const Error& e) {
    if (e.code() != ErrorCode::parse) std::abort();
  }
  try {
    const Transform t(text);
    if (!(Transform(t.recipe()) == t) || t.eval().random()) std::abort();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::parse) std::abort();
  }
  return 0;
}
