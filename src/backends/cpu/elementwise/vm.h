// SPDX-License-Identifier: Apache-2.0
// Runs a fused program strip by strip: each strip of every operand stays in the L1 cache while the
// whole program passes over it, so memory is read and written once. The bits are those of the
// operators run one by one.
#pragma once
#include <variant>

#include "backends/cpu/elementwise/strip_ops.h"
#include "ops/fused/program.h"
#include "runtime/backend.h"

namespace cairn::cpu {

// A bool input whose value is known beforehand: selects on it become their one side.
struct KnownCondition {
  int input = -1;
  bool value = false;
};

class Vm {
 public:
  // `program` has its types inferred for `in`; all its results must have one shape. Operands of
  // that shape and the results lie in `layout` (exact: no padding), all others are dense and
  // broadcast. A refusal says why not.
  static std::variant<Vm, Refusal> compile(const ops::FusedProgram& program, Types in,
                                           const Layout& layout, KnownCondition known = {});

  void run(const void* const* in, void* const* out, void* workspace) const;
  size_t workspace_bytes() const { return workspace_bytes_; }
  // (input, result): the result may be written over the input.
  const std::vector<std::pair<int, int>>& in_place() const { return in_place_; }

 private:
  // Where a value lies while a strip is worked on.
  struct Slot {
    enum Kind { input, result, scratch, scalar } kind;
    int index;  // of the input or result; scratch: bytes from the start, for one element a strip;
                // scalar: of the input, or −1: in the workspace
    int size;   // bytes of an element
    size_t at = 0;  // there
  };
  struct Instruction {
    StripFn fn;
    int out, operands;
    std::array<int, 4> in;  // slots
    std::array<double, 2> p;
  };
  // An operand with fewer elements than the result: laid out into a scratch slot strip by strip.
  struct Broadcast {
    int slot, size;
    int input;                                      // −1: in the workspace
    size_t at = 0;                                  // there
    std::vector<std::pair<int64_t, int64_t>> axes;  // length and stride (elements), innermost first
  };
  // A part of the program over a smaller shape (say, once a channel): computed before, into the
  // workspace.
  struct Prologue {
    std::shared_ptr<const Vm> vm;
    std::vector<std::pair<int, size_t>> in;  // input, or −1 and a workspace offset
    size_t at;
  };
  struct Frame;
  class Compiler;

  void run_strips(const void* const* in, void* const* out, const std::byte* workspace,
                  int64_t begin, int64_t end) const;
  void run_rest(const Frame& frame, int64_t at, int64_t count) const;

  int64_t count_ = 0;
  int strip_ = 0, grain_ = 1,
      scratch_bytes_ = 0;  // elements; strips a thread takes at least; bytes an element
  std::vector<Slot> slots_;
  std::vector<Instruction> code_;
  std::vector<Broadcast> broadcasts_;
  std::vector<Prologue> prologue_;
  size_t workspace_bytes_ = 0;
  std::vector<std::pair<int, int>> in_place_;
};

}  // namespace cairn::cpu
