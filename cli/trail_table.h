// SPDX-License-Identifier: Apache-2.0
// The trail as data; tests/trail checks it against docs/trail.md and the markers' own headers.
#pragma once

namespace cairn::cli {

struct Marker {
  const char *file, *in, *out;
};
inline constexpr Marker kTrail[] = {
    {"src/data/source", "folder or list", "records (bytes, label)"},
    {"src/data/decode", "bytes", "u8 picture"},
    {"src/data/transform", "picture", "normalised tensor"},
    {"src/data/loader", "records", "prefetched batches"},
    {"src/nn/module", "batch", "calls on tensors"},
    {"src/ops/nn/conv", "a call", "operator + parameters"},
    {"src/runtime/interpreter", "operator", "run now (eager) or record (trace)"},
    {"src/ir/graph", "recorded calls", "typed graph"},
    {"src/autodiff/backward", "loss", "gradients"},
    {"src/train/loss_scale", "scaled gradients", "safe gradients"},
    {"src/train/optimizer", "gradients", "new parameters"},
    {"src/passes/pipeline", "graph", "fused, laid-out graph"},
    {"src/runtime/memory_plan", "graph", "arena offsets"},
    {"src/runtime/executor", "plan", "kernel launches"},
    {"src/backends/cpu/backend", "launch", "bytes in memory"},
    {"src/train/trainer", "steps", "epochs, metrics, checkpoints"},
    {"src/inspect/profile", "run", "timeline, hot operators"},
    {"src/convert/onnx", "graph + weights", "ONNX, and back"},
    {"src/serve/engine", "ONNX", "ready model"},
    {"src/serve/http", "outputs", "response"},
};

}  // namespace cairn::cli
