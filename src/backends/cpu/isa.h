// SPDX-License-Identifier: Apache-2.0
// Which vector instructions the CPU back end uses: what the machine has, unless CAIRN_ISA asks for
// less.
#pragma once
#include <string>
#include <string_view>

namespace cairn::cpu {

enum class Isa { sse4, avx2, avx512 };  // avx2 includes fma; avx512 is F + DQ + BW + VL
std::string_view name(Isa isa);

// The environment variable that limits the choice, and its values.
inline constexpr const char* kIsaVariable = "CAIRN_ISA";
inline constexpr const char* kIsaValues = "sse4, avx2, avx512";

struct IsaReport {
  std::string processor;  // as it names itself
  Isa machine, used;      // used: never more than the machine has
  std::string asked;      // CAIRN_ISA, "" when unset
};
// Throws invalid_argument when `asked` is neither "" nor one of the values.
IsaReport isa_report(std::string asked);
// As CAIRN_ISA asks; looked up once.
const IsaReport& isa_report();
inline Isa isa() { return isa_report().used; }

// Channels that one block of a blocked layout holds: 16 with AVX-512, else 8 (nChw16c, nChw8c).
inline int channel_block() { return isa() == Isa::avx512 ? 16 : 8; }

}  // namespace cairn::cpu
