// SPDX-License-Identifier: Apache-2.0
// For tests: values both we and PyTorch can make exactly, and comparison with what PyTorch 2.15
// (f64) made of them.
#pragma once
#include <cairn/autodiff.h>
#include <cairn/ops.h>
#include <gtest/gtest.h>

namespace cairn::ops {

// Element i is ((389 i + 101 seed) mod 1009) / 512 − 1: exact, and distinct up to 1009 elements.
inline Tensor pattern(const Shape& shape, int64_t seed, DType dtype = DType::f64) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.numel(); ++i)
    values.push_back(double((i * 389 + seed * 101) % 1009) / 512 - 1);
  const Tensor t = Tensor::from(values, shape);
  return dtype == DType::f64 ? t : cast(t, dtype);
}
inline Tensor positive_pattern(const Shape& shape, int64_t seed) {
  return pattern(shape, seed) / 4 + 1;
}

// The first element, the sum, and the sum weighted by a pattern: what a tensor is compared by.
using Digest = std::array<double, 3>;
inline Digest digest(const Tensor& t) {
  const auto values = t.to_doubles(), weights = pattern({t.numel()}, 77).values<double>();
  Digest d{values.empty() ? 0 : values[0], 0, 0};
  for (size_t i = 0; i < values.size(); ++i) d[1] += values[i], d[2] += values[i] * weights[i];
  return d;
}
inline void expect_digest(const std::string& what, const Tensor& t, const Digest& want,
                          double tolerance = 1e-11) {
  const Digest got = digest(t);
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i])))
        << what << " " << to_string(t.type()) << ", part " << i;
}

// Differentiates Σ_i ⟨y_i, pattern 50 + i⟩ by the inputs, and (when `second` is given) Σ_i ⟨that
// gradient i, pattern 60 + i⟩ by the inputs and then by the first patterns.
inline void expect_gradients(
    const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
    const std::vector<Tensor>& inputs, const std::vector<Digest>& values,
    const std::vector<Digest>& first, const std::vector<Digest>& second = {}) {
  Tape outer;
  std::vector<Tensor> sources = inputs, gradients;
  for (const Tensor& t : inputs) outer.watch(t);
  {
    Tape inner;
    for (const Tensor& t : inputs) inner.watch(t);
    const std::vector<Tensor> outputs = function(inputs);
    ASSERT_EQ(outputs.size(), values.size());
    Tensor total;
    for (size_t i = 0; i < outputs.size(); ++i) {
      expect_digest("output " + std::to_string(i), outputs[i], values[i]);
      const Tensor seed = pattern(outputs[i].shape(), 50 + int64_t(i));
      outer.watch(seed);
      sources.push_back(seed);
      const Tensor part = sum(outputs[i] * seed);
      total = total ? total + part : part;
    }
    gradients = inner.gradient(total, inputs);
  }
  ASSERT_EQ(gradients.size(), first.size());
  Tensor total;
  for (size_t i = 0; i < gradients.size(); ++i) {
    expect_digest("gradient " + std::to_string(i), gradients[i], first[i]);
    const Tensor part = sum(gradients[i] * pattern(gradients[i].shape(), 60 + int64_t(i)));
    total = total ? total + part : part;
  }
  if (second.empty()) return;
  ASSERT_EQ(second.size(), sources.size());
  const auto again = outer.gradient(total, sources);
  for (size_t i = 0; i < again.size(); ++i)
    expect_digest("second order " + std::to_string(i), again[i], second[i]);
}

// The call fails, and its message has all of these words.
template <class F>
void expect_error(F&& call, std::initializer_list<std::string_view> words) {
  try {
    call();
  } catch (const Error& e) {
    for (auto word : words)
      EXPECT_NE(std::string_view(e.what()).find(word), std::string_view::npos) << e.what();
    return;
  }
  ADD_FAILURE() << "no error";
}

}  // namespace cairn::ops
