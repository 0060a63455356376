// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: pure functions of the step, in double.
#include <cairn/optim.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "train/text_form.h"

namespace cairn::optim {
namespace {

using Kind = Schedule::Kind;
constexpr std::string_view kNames[] = {"constant", "step", "cosine", "one_cycle", "polynomial"};

// From a to b along half a cosine, t in [0, 1].
double anneal(double a, double b, double t) {
  return b + (a - b) / 2 * (1 + std::cos(std::numbers::pi * t));
}

void check(const Schedule& s) {
  const auto refuse = [&](std::string_view key, double got, std::string_view expected) {
    fail(ErrorCode::invalid_argument, fmt::format("schedule: {}: got {} = {}, expected {}",
                                                  kNames[size_t(s.kind)], key, got, expected));
  };
  if (!(s.warmup >= 0)) refuse("warmup", s.warmup, "0 or more epochs");
  if (!(s.every > 0)) refuse("every", s.every, "more than 0 epochs");
  if (!(s.rise > 0 && s.rise < 1)) refuse("rise", s.rise, "a share between 0 and 1");
  if (!(s.start > 0)) refuse("start", s.start, "more than 0");
  if (!(s.end > 0)) refuse("end", s.end, "more than 0");
}

}  // namespace

double Schedule::factor(int64_t step, int64_t steps_per_epoch, double epochs) const {
  const double per_epoch = double(std::max<int64_t>(steps_per_epoch, 1));
  const double total = std::max(1.0, epochs * per_epoch), at = std::min(double(step), total);
  if (kind == Kind::one_cycle) {  // PyTorch: phases end at rise · total − 1 and total − 1
    const double top = rise * total - 1, last = total - 1, low = 1 / start;
    if (top > 0 && at <= top) return anneal(low, 1, at / top);
    return anneal(1, low / end, std::clamp((at - top) / std::max(1.0, last - top), 0.0, 1.0));
  }
  const double warm = std::min(warmup * per_epoch, total);
  if (at < std::floor(warm)) return (at + 1) / warm;
  const double t = total > warm ? std::clamp((at - warm) / (total - warm), 0.0, 1.0) : 1.0;
  switch (kind) {
    case Kind::step:
      return std::pow(gamma, std::floor(at / (every * per_epoch)));
    case Kind::cosine:
      return anneal(1, final, t);
    case Kind::polynomial:
      return final + (1 - final) * std::pow(1 - t, power);
    default:
      return 1;
  }
}

Schedule parse_schedule(std::string_view text) {
  train::TextForm form("schedule", text);
  const auto* name = std::find(std::begin(kNames), std::end(kNames), form.name());
  if (name == std::end(kNames)) form.unknown_name(fmt::format("{}", fmt::join(kNames, ", ")));
  Schedule s;
  s.kind = Kind(name - kNames);
  if (s.kind != Kind::one_cycle) form.number("warmup", s.warmup);
  if (s.kind == Kind::cosine || s.kind == Kind::polynomial) form.number("final", s.final);
  if (s.kind == Kind::step) form.number("gamma", s.gamma), form.number("every", s.every);
  if (s.kind == Kind::polynomial) form.number("power", s.power);
  if (s.kind == Kind::one_cycle)
    form.number("rise", s.rise), form.number("start", s.start), form.number("end", s.end);
  form.finish();
  check(s);
  return s;
}

std::string to_string(const Schedule& s) {
  train::TextFormWriter out{std::string(kNames[size_t(s.kind)])};
  const Schedule plain;
  const auto add = [&](std::string_view key, double value, double usual) {
    if (value != usual) out.number(key, value);
  };
  if (s.kind == Kind::step) out.number("gamma", s.gamma).number("every", s.every);
  if (s.kind == Kind::one_cycle)
    out.number("rise", s.rise).number("start", s.start).number("end", s.end);
  if (s.kind == Kind::cosine || s.kind == Kind::polynomial) add("final", s.final, plain.final);
  if (s.kind == Kind::polynomial) add("power", s.power, plain.power);
  if (s.kind != Kind::one_cycle) add("warmup", s.warmup, plain.warmup);
  return out.text();
}

}  // namespace cairn::optim
