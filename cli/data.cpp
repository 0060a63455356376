// SPDX-License-Identifier: Apache-2.0
// cairn data: make pictures, and see what a data set holds.
#include <cairn/data.h>
#include <fmt/format.h>

#include <iostream>

#include "base/file.h"
#include "cli/session.h"
#include "cli/verbs.h"
#include "data/make.h"
#include "inspect/table.h"

namespace cairn::cli {
namespace {

struct Make {
  std::string out;
  data::MakeOptions options;
};

void make(const Make& o) {
  data::make_solar_cells(o.out, o.options, Counter("drawing cells", o.options.count));
  std::cerr << fmt::format("{} cells in {}: functional/, defective/, labels.csv\n", o.options.count, printable(o.out));
}

struct Inspect {
  std::string path;
  bool json = false, strict = false;
};

void inspect_data(const Inspect& o) {
  const auto set = data::open(o.path);
  const auto checked = set.check({.progress = Counter("checking pictures", set.size())});
  if (o.json) {
    std::cout << checked.report.json() << "\n";
  } else {
    inspect::Table table({{"class"}, {"pictures", inspect::Table::Align::right}});
    const auto counts = checked.usable.class_counts();
    for (size_t i = 0; i < counts.size(); ++i) table.row({checked.usable.classes()[i], std::to_string(counts[i])});
    std::cout << table.str()
              << fmt::format("sizes {}x{} … {}x{}{}\n", checked.smallest.width, checked.smallest.height,
                             checked.largest.width, checked.largest.height, checked.grey ? ", all grey" : "")
              << checked.report.summary() << "\n";
  }
  using data::Bucket;
  if (o.strict && checked.report.count(Bucket::used) != checked.report.found()) set_exit_code(2);
}

}  // namespace

void add_data(CLI::App& app) {
  auto* verb = app.add_subcommand("data", "Make and look at data sets");
  verb->require_subcommand(1);
  auto m = std::make_shared<Make>();
  auto* make_verb = verb->add_subcommand("make", "Draw pictures like electroluminescence shots of solar cells");
  make_verb->add_option("--out", m->out, "folder to make")->required();
  make_verb->add_option("--count", m->options.count)->capture_default_str()->check(CLI::Range(1, 10000000));
  make_verb->add_option("--defective", m->options.defective, "share of cells with a defect")->capture_default_str()->check(number(0.0, 1.0));
  make_verb->add_option("--size", m->options.size, "side in pixels")->capture_default_str()->check(CLI::Range(32, 4096));
  make_verb->add_option("--seed", m->options.seed)->capture_default_str();
  make_verb->footer("Example:\n  cairn data make --count 1200 --seed 1 --out pictures/");
  make_verb->callback([m] { make(*m); });
  auto i = std::make_shared<Inspect>();
  auto* inspect_verb = verb->add_subcommand("inspect", "Classes, sizes, and every picture that cannot be used, with the reason");
  inspect_verb->add_option("path", i->path, "folder or CSV list")->required();
  inspect_verb->add_flag("--json", i->json, "the data report as JSON");
  inspect_verb->add_flag("--strict", i->strict, "exit with 2 when any picture is not used as it stands");
  inspect_verb->footer("Example:\n  cairn data inspect pictures/ --strict");
  inspect_verb->callback([i] { inspect_data(*i); });
}

}  // namespace cairn::cli
