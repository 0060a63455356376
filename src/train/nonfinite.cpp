// SPDX-License-Identifier: Apache-2.0
#include "train/nonfinite.h"

#include <fmt/format.h>

#include <cmath>

#include "ops/context.h"

namespace cairn::train {
namespace {

// The flat index of the first element that is not finite, −1 when all are.
int64_t first_nonfinite(const Tensor& x) {
  if (!is_float(x.dtype())) return -1;
  const Tensor dense = x.dense();
  const auto search = [&](const auto* p) -> int64_t {
    for (int64_t i = 0; i < dense.numel(); ++i)
      if (!std::isfinite(p[i])) return i;
    return -1;
  };
  if (x.dtype() == DType::f32) return search(dense.data<float>());
  if (x.dtype() == DType::f64) return search(dense.data<double>());
  const auto values = dense.to_doubles();
  return search(values.data());
}

}  // namespace

std::vector<Tensor> NonfiniteFinder::apply(const OpCall& call) {
  std::vector<Tensor> out;
  {
    InterpreterScope scope(next_);
    out = next_.apply(call);
  }
  for (size_t k = 0; k < out.size() && finding_.empty(); ++k) {
    const int64_t at = first_nonfinite(out[k]);
    if (at < 0) continue;
    finding_ = fmt::format("{} gave {} in the {} pass", call.op.name,
                           out[k].to_doubles()[size_t(at)], phase_);
    if (call.site.file) finding_ += " at " + to_string(call.site);
    if (!module_path().empty()) finding_ += fmt::format(" (module {})", module_path());
    if (out[k].rank() > 1)
      finding_ += fmt::format(", row {} of {}", at / (out[k].numel() / out[k].shape()[0]),
                              to_string(out[k].type()));
  }
  return out;
}

Tensor NonfiniteFinder::read(const Variable& variable) {
  InterpreterScope scope(next_);
  const Tensor x = next_.read(variable);
  if (finding_.empty())
    if (const int64_t at = first_nonfinite(x); at >= 0)
      finding_ = fmt::format("parameter {} holds {} at element {}", variable.name(),
                             x.to_doubles()[size_t(at)], at);
  return x;
}

void NonfiniteFinder::look_at_input(const std::string& name, const Tensor& x) {
  if (!finding_.empty()) return;
  if (const int64_t at = first_nonfinite(x); at >= 0)
    finding_ = fmt::format("the input {} holds {} in picture {} of the batch", name,
                           x.to_doubles()[size_t(at)],
                           x.rank() == 0 ? 0 : at / (x.numel() / x.shape()[0]));
}

}  // namespace cairn::train
