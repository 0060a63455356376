// SPDX-License-Identifier: Apache-2.0
// Control flow as operators: cond and while_loop carry their branches as graphs. Their definitions stand here
// and not in ops, because tracing a branch and differentiating it need ir and autodiff.
//
//   cond(condition, captured …) → results            then and else take all captured values
//   while_loop(state …, captured …) → state …        condition and body take state and captured values
#pragma once
#include <cairn/extend/params.h>

namespace cairn::ops {

struct CondParams {
  GraphPtr then_graph, else_graph;
  static constexpr auto fields =
      describe(field("then", &CondParams::then_graph), field("else", &CondParams::else_graph));
};

struct WhileParams {
  GraphPtr condition, body;
  int64_t state = 0;  // how many inputs are state
  static constexpr auto fields = describe(field("condition", &WhileParams::condition),
                                          field("body", &WhileParams::body), field("state", &WhileParams::state));
};

}  // namespace cairn::ops
