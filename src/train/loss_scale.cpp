// SPDX-License-Identifier: Apache-2.0
#include "train/loss_scale.h"

#include <fmt/format.h>

#include <cmath>

#include "train/text_form.h"

namespace cairn::train {
namespace {

using Kind = LossScale::Kind;
constexpr double kMaxScale = 0x1p60;

double largest(DType d) {
  switch (d) {
    case DType::f64:
      return std::numeric_limits<double>::max();
    case DType::f16:
      return 65504;
    case DType::bf16:
      return 0x1.FEp127;
    default:
      return double(std::numeric_limits<float>::max());
  }
}

}  // namespace

Tensor all_finite(const Tensor& x) {  // NaN compares false, and wins a maximum
  const Tensor size = abs(x);
  return less_equal(x.rank() == 0 ? size : max(size), largest(x.dtype()));
}

LossScale parse_loss_scale(std::string_view text) {
  TextForm form("loss scale", text);
  LossScale s;
  if (form.name() == "none") return form.finish(), s;
  if (form.name() == "fixed")
    s.kind = Kind::fixed;
  else if (form.name() == "dynamic")
    s.kind = Kind::dynamic;
  else
    form.unknown_name("none, fixed, dynamic");
  form.number("scale", s.scale);
  const auto whole = [&](std::string_view key, int64_t& to) {
    const double v = form.number(key).value_or(double(to));
    if (!(v >= 1 && v <= 1e9 && v == std::floor(v)))
      fail(ErrorCode::invalid_argument,
           fmt::format("loss scale: {}: got {}, expected a whole number from 1", key, v));
    to = int64_t(v);
  };
  if (s.kind == Kind::dynamic) {
    form.number("growth", s.growth), form.number("backoff", s.backoff),
        form.number("floor", s.floor);
    whole("interval", s.interval);
  }
  whole("max_skips", s.max_skips);
  form.finish();
  if (!(s.scale > 0 && s.scale <= kMaxScale && s.growth >= 1 && s.growth <= 1024 && s.backoff > 0 &&
        s.backoff < 1 && s.floor > 0 && s.floor <= s.scale))
    fail(ErrorCode::invalid_argument, fmt::format("loss scale: got \"{}\", expected scale > 0, "
                                                  "growth ≥ 1, 0 < backoff < 1, 0 < floor ≤ scale",
                                                  text));
  return s;
}

std::string to_string(const LossScale& s) {
  if (s.kind == Kind::none) return "none";
  TextFormWriter out(s.kind == Kind::fixed ? "fixed" : "dynamic");
  out.number("scale", s.scale);
  if (s.kind == Kind::dynamic)
    out.number("growth", s.growth)
        .number("backoff", s.backoff)
        .number("floor", s.floor)
        .number("interval", double(s.interval));
  return out.number("max_skips", double(s.max_skips)).text();
}

LossScaler::LossScaler(const LossScale& config) : config_(config) {
  if (!on()) return;
  scale_ = Variable("loss_scale/scale", Tensor::scalar(config.scale), false);
  good_steps_ = Variable("loss_scale/good_steps", Tensor::scalar(0, DType::i64), false);
}

Tensor LossScaler::scale(const Tensor& loss) const {
  if (!on()) return loss;
  const Tensor s = scale_.read();
  return loss * (s.dtype() == loss.dtype() ? s : cast(s, loss.dtype()));
}

Tensor LossScaler::unscale(std::vector<Tensor>& gradients) const {
  CAIRN_CHECK(on() && !gradients.empty(), "no loss scale, or no gradients");
  Tensor finite;
  const Tensor inverse = reciprocal(scale_.read());
  for (Tensor& g : gradients) {
    if (g.dtype() == DType::f16 || g.dtype() == DType::bf16) g = cast(g, DType::f32);
    g = g * (g.dtype() == DType::f32 ? inverse : cast(inverse, g.dtype()));
    const Tensor one = all_finite(g);
    finite = finite.defined() ? logical_and(finite, one) : one;
  }
  return finite;
}

void LossScaler::update(const Tensor& finite) const {
  if (config_.kind != Kind::dynamic) return;
  const Tensor scale = scale_.read(), good = good_steps_.read();
  const Tensor grow = greater_equal(good + 1, config_.interval);
  const Tensor kept = select(grow, minimum(scale * config_.growth, kMaxScale), scale);
  const Tensor zero = Tensor::scalar(0, DType::i64);
  scale_.assign(select(finite, kept, maximum(scale * config_.backoff, config_.floor)));
  good_steps_.assign(select(finite, select(grow, zero, good + 1), zero));
}

double LossScaler::value() const { return on() ? scale_.value().item() : 1; }

std::vector<Variable> LossScaler::state() const {
  if (!on()) return {};
  return {scale_, good_steps_};
}

}  // namespace cairn::train
