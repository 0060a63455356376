// SPDX-License-Identifier: Apache-2.0
// First values of parameters: distributions, and numbers drawn by Philox from seed and name.
#include <cairn/nn.h>

#include <cmath>
#include <numbers>

#include "base/parallel.h"
#include "base/random.h"

namespace cairn::nn {
namespace {

using Kind = Distribution::Kind;

// Elements that feed one output (in), or that one input feeds (out).
double fan_of(const Shape& shape, init::Fan fan) {
  if (shape.rank() < 2)
    fail(ErrorCode::invalid_argument,
         "init: got the shape " + to_string(shape) + ", expected two axes or more",
         "Use init::uniform or init::normal for biases");
  int64_t field = 1;
  for (int i = 2; i < shape.rank(); ++i) field *= shape[i];
  return double((fan == init::Fan::in ? shape[1] : shape[0]) * field);
}

// Four numbers from one block: uniform in [0, 1) with 32 bits, or two Box–Muller pairs.
void numbers(Kind kind, const std::array<uint32_t, 4>& bits, std::array<double, 4>& out) {
  if (kind == Kind::uniform) {
    for (size_t i = 0; i < 4; ++i) out[i] = double(bits[i]) * 0x1p-32;
    return;
  }
  for (size_t i = 0; i < 4; i += 2) {
    const double radius = std::sqrt(-2 * std::log((double(bits[i]) + 0.5) * 0x1p-32));
    const double angle = 2 * std::numbers::pi * double(bits[i + 1]) * 0x1p-32;
    out[i] = radius * std::cos(angle);
    out[i + 1] = radius * std::sin(angle);
  }
}

template <class T>
void fill(const Distribution& d, T* to, int64_t count, uint64_t key) {
  const double scale = d.kind == Kind::uniform ? d.b - d.a : d.b;
  parallel_for((count + 3) / 4, 4096, [&](int64_t begin, int64_t end) {
    std::array<double, 4> four;
    for (int64_t block = begin; block < end; ++block) {
      numbers(d.kind, philox(key, uint64_t(block), 0), four);
      for (int64_t i = block * 4; i < std::min(count, block * 4 + 4); ++i)
        to[i] = T(d.a + scale * four[size_t(i - block * 4)]);
    }
  });
}

thread_local InitOptions current_options;

}  // namespace

namespace init {

Init constant(double value) {
  return [=](const Shape&) { return Distribution{Kind::constant, value, 0}; };
}
Init uniform(double low, double high) {
  return [=](const Shape&) { return Distribution{Kind::uniform, low, high}; };
}
Init normal(double mean, double deviation) {
  return [=](const Shape&) { return Distribution{Kind::normal, mean, deviation}; };
}
Init kaiming_normal(Fan fan, double slope) {
  return [=](const Shape& s) {
    return Distribution{Kind::normal, 0, std::sqrt(2 / (1 + slope * slope) / fan_of(s, fan))};
  };
}
Init kaiming_uniform(Fan fan, double slope) {
  return [=](const Shape& s) {
    const double bound = std::sqrt(6 / (1 + slope * slope) / fan_of(s, fan));
    return Distribution{Kind::uniform, -bound, bound};
  };
}
Init xavier_uniform(double gain) {
  return [=](const Shape& s) {
    const double bound = gain * std::sqrt(6 / (fan_of(s, Fan::in) + fan_of(s, Fan::out)));
    return Distribution{Kind::uniform, -bound, bound};
  };
}

}  // namespace init

Tensor draw(const Distribution& from, const TensorType& type, uint64_t seed,
            std::string_view name) {
  if (from.kind == Kind::constant) return Tensor::full(type, from.a);
  const uint64_t key = mix(seed, hash(name));
  Tensor out = Tensor::uninitialized(type);
  switch (type.dtype) {
    case DType::f64:
      fill(from, out.mutable_data<double>(), type.numel(), key);
      break;
    case DType::f32:
      fill(from, out.mutable_data<float>(), type.numel(), key);
      break;
    default:
      fail(ErrorCode::dtype_unsupported,
           "init: " + std::string(name) + " is " + to_string(type) + ", expected f32 or f64");
  }
  return out;
}

InitScope::InitScope(InitOptions options) : previous_(std::exchange(current_options, options)) {}
InitScope::~InitScope() { current_options = previous_; }
const InitOptions& InitScope::current() { return current_options; }

}  // namespace cairn::nn
