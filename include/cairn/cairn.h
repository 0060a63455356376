// SPDX-License-Identifier: Apache-2.0
// All of Cairn for a program that trains: #include <cairn/cairn.h>, using namespace cairn.
// Serving (cairn/serve.h) and defining operators (cairn/extend/op.h) have headers of their own.
#pragma once
#include <cairn/autodiff.h>
#include <cairn/data.h>
#include <cairn/graph.h>
#include <cairn/loss.h>
#include <cairn/models.h>
#include <cairn/nn.h>
#include <cairn/ops.h>
#include <cairn/optim.h>
#include <cairn/safetensors.h>
#include <cairn/train.h>
