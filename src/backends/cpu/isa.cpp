// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/isa.h"

#include <cairn/error.h>
#include <cpuid.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace cairn::cpu {
namespace {

Isa detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::sse4;
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return wide ? Isa::avx512 : Isa::avx2;
}

std::string processor_name() {
  std::array<unsigned, 12> words{};
  if (__get_cpuid_max(0x80000000, nullptr) < 0x80000004) return "unknown x86-64 processor";
  for (unsigned i = 0; i < 3; ++i)
    __get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                &words[4 * i + 3]);
  std::array<char, 49> text{};
  std::memcpy(text.data(), words.data(), 48);
  std::string name(text.data());
  name.erase(0, name.find_first_not_of(' '));
  name.erase(name.find_last_not_of(' ') + 1);
  return name;
}

}  // namespace

std::string_view name(Isa isa) {
  constexpr std::array<std::string_view, 3> names{"sse4", "avx2", "avx512"};
  return names[size_t(isa)];
}

IsaReport isa_report(std::string asked) {
  const Isa machine = detect();
  for (const Isa isa : {Isa::sse4, Isa::avx2, Isa::avx512})
    if (asked.empty() || asked == name(isa))
      return {processor_name(), machine, asked.empty() ? machine : std::min(machine, isa), asked};
  fail(ErrorCode::invalid_argument,
       fmt::format("{}: got '{}', expected one of {}", kIsaVariable, asked, kIsaValues),
       "unset it to use what the processor has");
}

const IsaReport& isa_report() {
  static const IsaReport report = [] {
    const char* asked = std::getenv(kIsaVariable);
    return isa_report(asked ? asked : "");
  }();
  return report;
}

}  // namespace cairn::cpu
