// SPDX-License-Identifier: Apache-2.0
// Options that several verbs have.
#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "base/file.h"
#include "cli/verbs.h"

namespace cairn::cli {

CLI::Validator number(double least, double most) {
  return CLI::Validator(
      [=](std::string& text) {
        double v = 0;
        if (CLI::detail::lexical_cast(text, v) && v >= least && v <= most) return std::string();  // NaN is neither
        return fmt::format("got {}, expected a number from {} to {}", text, least, most);
      },
      fmt::format("[{} - {}]", least, most));
}

void refuse_overwrite(const std::string& out, const std::vector<std::string>& inputs) {
  std::error_code ignored;
  for (const std::string& in : inputs)
    if (!out.empty() && std::filesystem::equivalent(out, in, ignored))
      fail(ErrorCode::invalid_argument, fmt::format("--out {} is the file that is read", printable(out)), "Name another file");
}

void refuse_overflow(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->get_type_name() == "INT")
      option->check(CLI::Validator([](std::string& text) {
        int64_t v = 0;
        const bool beyond = std::from_chars(text.data(), text.data() + text.size(), v).ec == std::errc::result_out_of_range;
        return beyond ? fmt::format("got {}, beyond 64 bits", text) : std::string();
      }, ""));
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) refuse_overflow(*verb);
}

void add_threads(CLI::App* verb, int& threads) {
  verb->add_option("--threads", threads, "compute threads; 0: all cores")->capture_default_str()->check(CLI::Range(0, 4096));
}

void add_workers(CLI::App* verb, int& workers) {
  verb->add_option("--workers", workers, "loading threads; -1: chosen")->capture_default_str()->check(CLI::Range(-1, 4096));
}

void add_maths(CLI::App* verb, std::string& maths) {
  verb->add_option("--maths", maths, "fast, or exact: only algorithms that round as plain sums do (no Winograd)")
      ->capture_default_str()
      ->check(CLI::IsMember({"exact", "fast"}));
}

}  // namespace cairn::cli
