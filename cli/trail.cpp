// SPDX-License-Identifier: Apache-2.0
// cairn trail: the marker files that carry one picture from disk to gradient to served answer.
#include <fmt/format.h>

#include <iostream>

#include "cli/trail_table.h"
#include "cli/verbs.h"

namespace cairn::cli {

void add_trail(CLI::App& app) {
  auto* verb = app.add_subcommand("trail", "Print the trail: which file to read next");
  verb->footer("The same table, with more words, is docs/trail.md.");
  verb->callback([] {
    int number = 0;
    for (const Marker& m : kTrail)
      std::cout << fmt::format("{:2}  {:<28} {} → {}\n", ++number, m.file, m.in, m.out);
  });
}

}  // namespace cairn::cli
