// SPDX-License-Identifier: Apache-2.0
// gradients → new parameters: the update rules, as written in PyTorch's documentation of
// torch.optim (SGD, Adam, AdamW, RMSprop). (trail: gradients → new parameters)
#include <cairn/optim.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/text_form.h"

namespace cairn::optim {
namespace {

constexpr std::string_view kMethods = "sgd, momentum, nesterov, adam, adamw, rmsprop";

bool is_adam(const std::string& method) { return method == "adam" || method == "adamw"; }

// Fills in defaults and refuses what the method does not have.
Config resolved(std::string method, Options o) {
  const bool sgd = method == "sgd", rms = method == "rmsprop", adam = is_adam(method);
  const auto settle = [&](auto& option, const char* key, bool applies, auto usual) {
    if (!applies && option)
      fail(ErrorCode::invalid_argument, fmt::format("optimizer: {} has no \"{}\"", method, key));
    if (applies && !option) option = usual;
  };
  settle(o.lr, "lr", true, adam ? 1e-3 : 1e-2);
  settle(o.momentum, "momentum", sgd || rms, 0.0);
  settle(o.dampening, "dampening", sgd, 0.0);
  settle(o.nesterov, "nesterov", sgd, false);
  settle(o.beta1, "beta1", adam, 0.9);
  settle(o.beta2, "beta2", adam, 0.999);
  settle(o.alpha, "alpha", rms, 0.99);
  settle(o.centered, "centered", rms, false);
  settle(o.epsilon, "epsilon", !sgd, 1e-8);
  settle(o.weight_decay, "weight_decay", true, method == "adamw" ? 1e-2 : 0.0);
  const auto within = [&](const std::optional<double>& v, const char* key, double low,
                          double below) {
    if (v && !(*v >= low && *v < below))
      fail(ErrorCode::invalid_argument,
           fmt::format("optimizer: {}: got {} = {}, expected {} ≤ {} < {}", method, key, *v, low,
                       key, below));
  };
  within(o.lr, "lr", 0, 1e6);
  within(o.momentum, "momentum", 0, 1);
  within(o.beta1, "beta1", 0, 1);
  within(o.beta2, "beta2", 0, 1);
  within(o.alpha, "alpha", 0, 1);
  within(o.epsilon, "epsilon", 0, 1);
  within(o.weight_decay, "weight_decay", 0, 1e6);
  within(o.clip_value, "clip_value", 0, 1e30);
  within(o.clip_norm, "clip_norm", 0, 1e30);
  if (o.nesterov.value_or(false) && (*o.momentum <= 0 || *o.dampening != 0))
    fail(ErrorCode::invalid_argument,
         "optimizer: nesterov needs momentum above 0 and no dampening");
  return {std::move(method), std::move(o)};
}

bool below(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) &&
         (name.size() == prefix.size() || prefix.empty() || name[prefix.size()] == '.');
}

// A 0-d f64 value in the dtype of the parameters it meets.
Tensor as(const Tensor& scalar, DType dtype) {
  return scalar.dtype() == dtype ? scalar : cast(scalar, dtype);
}

}  // namespace

Config sgd(const Options& o) { return resolved("sgd", o); }
Config momentum(Options o) {
  if (!o.momentum) o.momentum = 0.9;
  return resolved("sgd", std::move(o));
}
Config nesterov(Options o) {
  o.nesterov = true;
  return momentum(std::move(o));
}
Config adam(const Options& o) { return resolved("adam", o); }
Config adamw(const Options& o) { return resolved("adamw", o); }
Config rmsprop(const Options& o) { return resolved("rmsprop", o); }

Config parse(std::string_view text) {
  train::TextForm form("optimizer", text);
  Options o;
  o.lr = form.number("lr");
  o.momentum = form.number("momentum");
  o.dampening = form.number("dampening");
  o.nesterov = form.flag("nesterov");
  o.beta1 = form.number("beta1");
  o.beta2 = form.number("beta2");
  o.alpha = form.number("alpha");
  o.centered = form.flag("centered");
  o.epsilon = form.number("epsilon");
  o.weight_decay = form.number("weight_decay");
  o.decay_all = form.flag("decay_all").value_or(true);
  form.number("clip_value", o.clip_value);
  form.number("clip_norm", o.clip_norm);
  form.finish();
  if (form.name() == "sgd") return sgd(o);
  if (form.name() == "momentum") return momentum(o);
  if (form.name() == "nesterov") return nesterov(o);
  if (form.name() == "adam") return adam(o);
  if (form.name() == "adamw") return adamw(o);
  if (form.name() == "rmsprop") return rmsprop(o);
  form.unknown_name(kMethods);
}

std::string to_string(const Config& config) {
  const Options& o = config.options;
  train::TextFormWriter out(config.method);
  const auto number = [&](const char* key, const std::optional<double>& v) {
    if (v) out.number(key, *v);
  };
  number("lr", o.lr);
  number("momentum", o.momentum);
  number("dampening", o.dampening);
  if (o.nesterov) out.flag("nesterov", *o.nesterov);
  number("beta1", o.beta1);
  number("beta2", o.beta2);
  number("alpha", o.alpha);
  if (o.centered) out.flag("centered", *o.centered);
  number("epsilon", o.epsilon);
  number("weight_decay", o.weight_decay);
  if (!o.decay_all) out.flag("decay_all", false);
  if (o.clip_value > 0) out.number("clip_value", o.clip_value);
  if (o.clip_norm > 0) out.number("clip_norm", o.clip_norm);
  return out.text();
}

Tensor global_norm(const std::vector<Tensor>& tensors) {
  Tensor total;
  for (const Tensor& t : tensors) {
    const Tensor one = sum(square(t));
    total = total.defined() ? total + one : one;
  }
  return total.defined() ? sqrt(total) : Tensor::scalar(0);
}

Optimizer::Optimizer(const Config& config, const std::vector<Variable>& parameters)
    : config_(resolved(config.method, config.options)) {
  const Options& o = config_.options;
  for (const Variable& p : parameters) {
    if (!p.trainable()) continue;
    Slot slot{p, 1, *o.weight_decay, {}, {}, {}};
    if (!o.decay_all && p.type().shape.rank() <= 1) slot.weight_decay = 0;
    for (const Group& g : o.groups)
      if (below(p.name(), g.prefix)) {
        slot.lr_scale = g.lr_scale;
        slot.weight_decay = g.weight_decay.value_or(slot.weight_decay);
        break;
      }
    const auto state = [&](const char* kind) {
      state_.emplace_back(fmt::format("optimizer/{}/{}", kind, p.name()), Tensor::full(p.type(), 0),
                          false);
      return state_.back();
    };
    if (is_adam(config_.method)) {
      slot.first = state("first_moment");
      slot.second = state("second_moment");
    } else {
      if (*o.momentum > 0) slot.first = state("momentum");
      if (config_.method == "rmsprop") slot.second = state("square_average");
      if (o.centered.value_or(false)) slot.third = state("gradient_average");
    }
    parameters_.push_back(p);
    slots_.push_back(std::move(slot));
  }
  for (const Group& g : o.groups)
    if (std::none_of(parameters_.begin(), parameters_.end(),
                     [&](const Variable& p) { return below(p.name(), g.prefix); }))
      fail(ErrorCode::not_found,
           fmt::format("optimizer: no trained parameter is in the group \"{}\"", g.prefix));
}

Tensor Optimizer::update(std::vector<Tensor> gradients, const Tensor& lr, const Tensor& step,
                         const Tensor& apply) {
  CAIRN_CHECK(gradients.size() == slots_.size(), "optimizer: one gradient a parameter");
  const Options& o = config_.options;
  if (o.clip_value > 0)
    for (Tensor& g : gradients) g = clamp(g, -o.clip_value, o.clip_value);
  Tensor norm;
  if (o.clip_norm > 0) {  // torch.nn.utils.clip_grad_norm_: c = min(1, max_norm / (norm + 1e-6))
    norm = global_norm(gradients);
    const Tensor scale = minimum(o.clip_norm / (norm + 1e-6), 1);
    for (Tensor& g : gradients) g = g * scale;
  }

  // Scalars are computed once, in f64, so that 1 − βᵗ keeps its digits.
  const bool adam = is_adam(config_.method);
  const Tensor t = cast(step, DType::f64);
  Tensor correction1, root2;
  if (adam) {
    correction1 = 1 - pow(Tensor::scalar(*o.beta1, DType::f64), t);
    root2 = sqrt(1 - pow(Tensor::scalar(*o.beta2, DType::f64), t));
  }
  const auto assign = [&](const Variable& v, const Tensor& now, const Tensor& before) {
    v.assign(apply.defined() ? select(apply, now, before) : now);
  };

  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& s = slots_[i];
    const Tensor p = s.parameter.read();
    const DType dtype = p.dtype();
    const Tensor rate64 = s.lr_scale == 1 ? lr : lr * s.lr_scale;
    const Tensor rate = as(rate64, dtype);
    Tensor g = gradients[i], next = p;
    if (s.weight_decay > 0) {
      if (config_.method == "adamw")
        next = p * as(1 - rate64 * s.weight_decay, dtype);
      else
        g = g + p * s.weight_decay;
    }
    if (config_.method == "sgd") {
      // b ← μ b + (1 − dampening) g, at the first step b ← g; p ← p − lr b, or p − lr (g + μ b).
      if (s.first.defined()) {
        const Tensor old = s.first.read();
        Tensor b = old * *o.momentum + (*o.dampening == 0 ? g : g * (1 - *o.dampening));
        if (*o.dampening != 0) b = select(step <= 1, g, b);
        assign(s.first, b, old);
        g = *o.nesterov ? g + b * *o.momentum : b;
      }
      next = next - rate * g;
    } else if (adam) {
      // m ← β₁ m + (1 − β₁) g;  v ← β₂ v + (1 − β₂) g²;  p ← p − lr/(1 − β₁ᵗ) · m / (√v / √(1 −
      // β₂ᵗ) + ε).
      const Tensor m0 = s.first.read(), v0 = s.second.read();
      const Tensor m = m0 + (g - m0) * (1 - *o.beta1);
      const Tensor v = v0 * *o.beta2 + square(g) * (1 - *o.beta2);
      assign(s.first, m, m0);
      assign(s.second, v, v0);
      next =
          next - as(rate64 / correction1, dtype) * (m / (sqrt(v) / as(root2, dtype) + *o.epsilon));
    } else {
      // v ← α v + (1 − α) g²;  a = √v + ε, centred: √(v − ḡ²) + ε;  p ← p − lr g/a, with momentum
      // through b.
      const Tensor v0 = s.second.read();
      const Tensor v = v0 * *o.alpha + square(g) * (1 - *o.alpha);
      assign(s.second, v, v0);
      Tensor spread = v;
      if (s.third.defined()) {
        const Tensor a0 = s.third.read();
        const Tensor a = a0 + (g - a0) * (1 - *o.alpha);
        assign(s.third, a, a0);
        spread = v - square(a);
      }
      Tensor by = g / (sqrt(spread) + *o.epsilon);
      if (s.first.defined()) {
        const Tensor b0 = s.first.read();
        const Tensor b = b0 * *o.momentum + by;
        assign(s.first, b, b0);
        by = b;
      }
      next = next - rate * by;
    }
    assign(s.parameter, next, p);
  }
  return norm;
}

}  // namespace cairn::optim
