// SPDX-License-Identifier: Apache-2.0
// Training: batch norm joined with the addition and the relu, or with the silu, that follow it, forwards and backwards;
// one pass over memory instead of three.
//
//   before: %1, %m, %v = batch_norm_train{…}(%x, %g, %b); %2 = add(%1, %r); %3 = relu(%2)
//   after:  %3, %m, %v = batch_norm_act_train{activation="relu", residual=true}(%x, %g, %b, %r)
//
//   before: %d = relu_grad(%dy, %y); %dx, %dg, %db = batch_norm_grad{…}(%d, %x, %g, %m, %v)
//   after:  %dx, %dg, %db, %d = batch_norm_act_grad{activation="relu", residual=…}(%dy, %y, %x, %g, %m, %v)
//
//   before: %1, %m, %v = batch_norm_train{…}(%x, %g, %b); %2 = silu(%1)
//           %d = silu_grad(%dy, %1); %dx, %dg, %db = batch_norm_grad{…}(%d, %x, %g, %m, %v)
//   after:  %2, %m, %v = batch_norm_act_train{activation="silu"}(%x, %g, %b)
//           %dx, %dg, %db = batch_norm_act_grad{activation="silu"}(%dy, %x, %x, %g, %m, %v, %b)
#pragma once
#include "passes/pipeline.h"

namespace cairn::passes {

PassReport fuse_norm_act(Graph& graph);

}  // namespace cairn::passes
