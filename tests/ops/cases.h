// SPDX-License-Identifier: Apache-2.0
// The cases of the conformance suite: an operator's samples with values, in every dtype it takes.
#pragma once
#include <cairn/ops.h>
#include <fmt/format.h>

#include <cmath>

#include "base/random.h"
#include "core/strided.h"
#include "ops/reference.h"

namespace cairn::conformance {

struct Case {
  const OpDef* op;
  Params params;
  std::vector<Tensor> inputs;

  TypeList types() const {
    TypeList list;
    for (const Tensor& t : inputs) list.push_back(t.type());
    return list;
  }
  TypeList result_types() const { return op->infer(params, types()); }
  std::string describe() const {
    std::string text = op->name + params.to_string() + "(";
    for (size_t i = 0; i < inputs.size(); ++i)
      text += (i ? ", " : "") + to_string(inputs[i].type());
    return text + ")";
  }
};

inline const ArgSpec& argument(const OpDef& op, size_t i) {
  return op.inputs[std::min(i, op.inputs.size() - 1)];
}

// Values of a sample input as a dense tensor of `dtype`. Floats are distinct, also from those of
// the other operands, and none is within 0.02 of 0.
inline Tensor make_values(const SampleInput& sample, DType dtype, size_t operand, size_t operands,
                          Random& random) {
  const int64_t n = sample.type.numel();
  Tensor t = Tensor::uninitialized({dtype, sample.type.shape});
  std::vector<int64_t> slots(static_cast<size_t>(n));
  for (size_t k = 0; k < slots.size(); ++k) slots[k] = int64_t(k * operands + operand);
  random.shuffle(slots);
  double low = sample.low, high = sample.high;
  if (is_float(sample.type.dtype) && !is_float(dtype))
    low = -9, high = 9;  // a float sample as integers
  if (dtype == DType::u8) low = std::max(low, 0.0), high = std::max(high, low + 1);
  if (dtype == DType::boolean) low = 0, high = 2;
  visit_dtype(dtype, [&](auto tag) {
    using T = decltype(tag);
    T* to = t.mutable_data<T>();
    for (size_t k = 0; k < slots.size(); ++k) {
      if (!is_float(dtype)) {
        to[k] = store_as<T>(int64_t(std::floor(random.uniform(low, high))));
        continue;
      }
      double v = low + (double(slots[k]) + random.uniform(0.35, 0.65)) /
                           double(n * int64_t(operands)) * (high - low);
      if (std::fabs(v) < 0.02) v += v < 0 ? -0.02 : 0.02;
      to[k] = store_as<T>(v);
    }
  });
  return t;
}

// Does the program of a fused operator take these dtypes?
inline bool fits(const Case& c) {
  try {
    return c.result_types(), true;
  } catch (const Error&) {
    return false;
  }
}

// The sample with its inputs as `dtype` where the argument takes it; nothing when none changes,
// unless `always`.
inline std::optional<Case> as_dtype(const OpDef& op, const OpDef::Sample& sample, size_t key,
                                    std::optional<DType> dtype) {
  Case c{&op, sample.params, {}};
  Random random(hash(op.name), key);
  bool changed = !dtype;
  bool any_value = false;  // is there an input that is no index?
  for (size_t i = 0; i < sample.inputs.size(); ++i)
    any_value = any_value || argument(op, i).dtypes != any_index;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    const SampleInput& s = sample.inputs[i];
    DType d = s.type.dtype;
    const bool index_like = argument(op, i).dtypes == any_index,
               convertible = d != DType::boolean && (!index_like || !any_value);
    if (dtype && convertible && contains(argument(op, i).dtypes, *dtype)) {
      changed = changed || d != *dtype;
      d = *dtype;
    } else if (dtype && is_float(d) && is_float(*dtype)) {
      return std::nullopt;  // a float argument that does not take it
    }
    c.inputs.push_back(make_values(s, d, i, sample.inputs.size(), random));
  }
  if (!changed || (dtype && op.name == "fused_elementwise" && !fits(c))) return std::nullopt;
  return c;
}

inline std::vector<Case> cases(const OpDef& op) {
  std::vector<Case> list;
  for (size_t i = 0; i < op.samples.size(); ++i)
    list.push_back(*as_dtype(op, op.samples[i], i, {}));
  return list;
}

// The samples as written and in every other dtype; elementwise operators also with six axes.
inline std::vector<Case> all_cases(const OpDef& op) {
  std::vector<Case> list = cases(op);
  for (size_t i = 0; i < op.samples.size(); ++i)
    for (DType d : kAllDTypes)
      if (auto c = as_dtype(op, op.samples[i], i, d)) list.push_back(std::move(*c));
  if (op.fusion.kind == FusionClass::elementwise && !op.samples.empty() &&
      !op.samples[0].inputs.empty()) {
    auto sample = op.samples[0];
    for (SampleInput& s : sample.inputs) s.type.shape = {2, 1, 3, 1, 2, 2};
    list.push_back(*as_dtype(op, sample, 100, {}));
  }
  return list;
}

// The samples in f64; empty when an argument does not take it.
inline std::vector<Case> f64_cases(const OpDef& op) {
  std::vector<Case> list;
  for (size_t i = 0; i < op.samples.size(); ++i)
    if (auto c = as_dtype(op, op.samples[i], i, DType::f64)) {
      for (const Tensor& t : c->inputs)
        if (is_float(t.dtype())) {
          list.push_back(std::move(*c));
          break;
        }
    }
  return list;
}

inline std::vector<RefTensor> load(std::span<const Tensor> tensors) {
  std::vector<RefTensor> list;
  for (const Tensor& t : tensors) {
    const Tensor dense = t.dense();
    list.push_back(load_reference(dense.type(), dense.bytes()));
  }
  return list;
}

inline std::vector<RefTensor> run_reference(const OpDef& op, const Params& params, RefIn in) {
  TypeList types;
  for (const RefTensor& t : in) types.push_back(t.type);
  std::vector<RefTensor> out;
  for (const TensorType& t : op.infer(params, types)) out.push_back(empty_reference(t));
  op.reference(params, in, out);
  return out;
}

inline Tensor store(const RefTensor& t) {
  Tensor out = Tensor::uninitialized(t.type);
  store_reference(t, out.mutable_bytes());
  return out;
}

// The same values, stored in the reverse order of axes.
inline Tensor transposed_storage(const Tensor& t) {
  const Shape& shape = t.shape();
  Shape reversed, back;
  for (int i = shape.rank() - 1; i >= 0; --i) reversed.push_back(shape[i]);
  const Shape dense = dense_strides(reversed);
  for (int i = shape.rank() - 1; i >= 0; --i) back.push_back(dense[i]);
  const RefTensor values = load(std::span(&t, 1))[0];
  RefTensor moved{{t.dtype(), reversed},
                  std::vector<double>(values.f.size()),
                  std::vector<int64_t>(values.i.size())};
  for (int64_t k = 0; k < t.numel(); ++k) {
    int64_t rest = k, to = 0;
    for (int i = shape.rank() - 1; i >= 0; rest /= shape[i--]) to += rest % shape[i] * back[i];
    moved.copy(to, values, k);
  }
  const Tensor stored = store(moved);
  return Tensor::view(stored.storage(), t.type(), back, stored.offset());
}

// The same values as every second element of rows twice as long.
inline Tensor spaced_storage(const Tensor& t) {
  if (t.rank() == 0) return t;
  const RefTensor values = load(std::span(&t, 1))[0];
  RefTensor wide = empty_reference({t.dtype(), {t.numel() * 2}});
  for (int64_t k = 0; k < t.numel(); ++k) wide.copy(2 * k, values, k);
  const Tensor stored = store(wide);
  Shape strides = dense_strides(t.shape());
  for (int i = 0; i < strides.rank(); ++i) strides[i] *= 2;
  return Tensor::view(stored.storage(), t.type(), strides, stored.offset());
}

// The first row of the first axis, repeated with stride 0: other values than t's.
inline Tensor repeated_storage(const Tensor& t) {
  if (t.rank() == 0 || t.numel() == 0) return t;
  Shape strides = dense_strides(t.shape());
  strides[0] = 0;
  return Tensor::view(t.storage(), t.type(), strides, t.offset());
}

}  // namespace cairn::conformance
