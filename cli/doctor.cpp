// SPDX-License-Identifier: Apache-2.0
// cairn doctor: what this machine offers, what Cairn makes of it, and what to do about each thing amiss.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "backends/cpu/isa.h"
#include "backends/cpu/versions.h"
#include "base/parallel.h"
#include "cli/verbs.h"
#include "inspect/table.h"

namespace cairn::cli {
namespace {

struct Line {
  std::string name, value, advice;  // advice: empty when all is well
};

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// "always [madvise] never" → "madvise"
std::string bracketed(const std::string& text) {
  const auto open = text.find('['), close = text.find(']');
  return open == text.npos || close == text.npos ? text : text.substr(open + 1, close - open - 1);
}

double memory_gb(const char* key) {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return std::strtod(line.c_str() + line.find(':') + 1, nullptr) / 1e6;
  return 0;
}

std::vector<Line> examine() {
  std::vector<Line> lines;
  const cpu::IsaReport& isa = cpu::isa_report();
  lines.push_back({"cairn", CAIRN_VERSION, ""});
  lines.push_back({"processor", isa.processor, ""});
  lines.push_back({"instructions",
                   fmt::format("{} in use, {} on this machine", cpu::name(isa.used), cpu::name(isa.machine)),
                   isa.machine == cpu::Isa::sse4 ? "Without AVX2, training is several times slower: take a newer machine"
                   : isa.used != isa.machine     ? "CAIRN_ISA asks for less than the machine has: unset it for speed"
                                                 : ""});
  const unsigned all = std::thread::hardware_concurrency();
  const int usable = thread_count();
  lines.push_back({"cores", fmt::format("{} usable of {}", usable, all),
                   usable < int(all) ? "Fewer than the machine has: see OMP_NUM_THREADS, taskset or the container's limit" : ""});
  const double total = memory_gb("MemTotal"), available = memory_gb("MemAvailable");
  lines.push_back({"memory", fmt::format("{:.1f} GB, {:.1f} GB available", total, available),
                   available < 2 ? "Little is free: training ResNet-50 at batch 8 takes about 1.5 GB" : ""});
  const std::string pages = bracketed(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  lines.push_back({"huge pages", pages.empty() ? "unknown" : pages,
                   pages == "never" ? "Page faults cost 5-10 %: echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled" : ""});
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  lines.push_back({"load", fmt::format("{:.2f}", load),
                   load > 0.5 * usable ? "Other work shares the cores: measure speed when it is over; until then OMP_WAIT_POLICY=passive keeps threads from spinning" : ""});
  for (const auto& v : cpu::library_versions())
    lines.push_back({v.name, v.running == v.built ? v.running : fmt::format("{}, built with {}", v.running, v.built),
                     v.running == v.built ? "" : "Runs with another version than it was built with: build anew, or fix LD_LIBRARY_PATH"});
  struct Known {
    const char *name, *meaning, *advice;
  };
  const Known kVariables[] = {
      {"CAIRN_ISA", "limits the vector instructions: sse4, avx2, avx512", ""},
      {"CAIRN_WINOGRAD_AVX512", "1 takes Winograd's convolution on AVX-512 too, where it is untested", ""},
      {"CAIRN_LOG", "what is logged: debug, info, warning", ""},
      {"OMP_NUM_THREADS", "compute threads", ""},
      {"OMP_PROC_BIND", "binds threads to cores", ""},
      {"OMP_WAIT_POLICY", "spinning or sleeping between parallel regions",
       load > 0.5 * usable ? "" : "passive adds microseconds to every operator: unset it where nothing else runs"},
      {"ONEDNN_VERBOSE", "oneDNN reports every primitive", "slows everything down: unset it when measuring"},
      {"DNNL_VERBOSE", "the same, by its old name", "slows everything down: unset it when measuring"},
      {"LD_PRELOAD", "other libraries come first", ""},
  };
  for (const Known& k : kVariables) {
    const char* value = std::getenv(k.name);
    const bool passive = std::string_view(k.name) == "OMP_WAIT_POLICY" && value && std::string_view(value) != "passive";
    lines.push_back({k.name, value ? value : fmt::format("unset ({})", k.meaning), value && !passive ? k.advice : ""});
  }
  return lines;
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  auto* verb = app.add_subcommand("doctor", "Examine this machine and say what is amiss");
  verb->add_flag("--json", *json);
  verb->callback([json] {
    const auto lines = examine();
    if (*json) {
      nlohmann::ordered_json out;
      for (const Line& l : lines) {
        out[l.name]["value"] = l.value;
        if (!l.advice.empty()) out[l.name]["advice"] = l.advice;
      }
      std::cout << out.dump(2) << "\n";
      return;
    }
    inspect::Table table({{""}, {"what"}, {"found"}});
    for (const Line& l : lines) table.row({l.advice.empty() ? "ok" : "!", l.name, l.value});
    std::cout << table.str();
    bool first = true;
    for (const Line& l : lines)
      if (!l.advice.empty()) {
        if (first) std::cout << "\nTo do:\n";
        first = false;
        std::cout << fmt::format("  {}: {}\n", l.name, l.advice);
      }
    if (first) std::cout << "\nAll is well.\n";
  });
}

}  // namespace cairn::cli
