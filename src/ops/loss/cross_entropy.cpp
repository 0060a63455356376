// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of each record: loss = −Σ_c t_c w_c log softmax(logits)_c, with targets t from a
// label and smoothing.
#include "ops/loss/cross_entropy.h"

#include <cmath>

#include "base/parallel.h"
#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {

void wrong_label(int64_t label, int64_t record, int64_t classes) {
  fail(ErrorCode::invalid_argument,
       fmt::format(
           "cross_entropy: input labels: got {} for record {}, expected 0 … {} or {} to ignore it",
           label, record, classes - 1, kIgnoredLabel));
}

namespace {

void expect_loss_inputs(const CrossEntropyParams& p, const TensorType& logits,
                        const TensorType& labels, const TensorType* class_weights) {
  if (!(p.smoothing >= 0 && p.smoothing <= 1))
    wrong_param("smoothing", fmt::format("{}", p.smoothing), "0 … 1");
  if (logits.shape.rank() < 2 || logits.shape[1] < 1)
    wrong_input("logits", logits, "[n, classes, ...] with at least one class");
  Shape records = logits.shape;
  records.erase(1);
  expect_shape("labels", labels, records, fmt::format("for logits {}", to_string(logits)));
  if (!class_weights) return;
  check_same_dtype(std::array{logits, *class_weights}, {"logits", "class_weights"});
  expect_shape("class_weights", *class_weights, {logits.shape[1]}, "as there are classes");
}

std::string loss_factors(const Shape& logits, const char* pattern) {
  const std::string records = [&] {
    std::string text = "a";
    for (int i = 2; i < logits.rank(); ++i) text += std::string(" ") + char('a' + i);
    return text;
  }();
  std::string out;
  for (const char* c = pattern; *c; ++c)
    out += *c == 'L' ? axis_names(logits.rank(), {1}) : *c == 'R' ? records : std::string(1, *c);
  return out;
}

// One record as the references see it: its logits are `first[c * step]`.
struct Record {
  int64_t label, first;
  bool counted;
};
// Calls body(record number, record) for all records; `step` is the distance between classes.
template <class Body>
void for_each_record(const RefTensor& logits, const RefTensor& labels, Body&& body) {
  const AxisView v(logits.shape(), 1);
  parallel_for(v.outer * v.inner, 64, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t label = labels.i[size_t(k)];
      if (label != kIgnoredLabel && (label < 0 || label >= v.length))
        wrong_label(label, k, v.length);
      body(size_t(k),
           Record{label, k / v.inner * v.length * v.inner + k % v.inner, label != kIgnoredLabel},
           v);
    }
  });
}

// t_c w_c of a counted record.
double weighted_target(const CrossEntropyParams& p, const Record& r, int64_t c, int64_t classes,
                       const RefTensor* class_weights) {
  const double t = (c == r.label ? 1 - p.smoothing : 0) + p.smoothing / double(classes);
  return class_weights ? t * class_weights->f[size_t(c)] : t;
}

// The targets t [n, classes, …] as a tensor; zero where the label is ignored.
Tensor targets(const CrossEntropyParams& p, const Tensor& labels, int64_t classes, DType dtype) {
  Shape wide = labels.shape(), across = Shape::filled(labels.rank() + 1, 1);
  wide.insert(1, 1);
  across[1] = classes;
  const Tensor column = reshape(labels, wide);
  const Tensor hit = cast(equal(column, iota(across, 1, labels.dtype())), dtype);
  if (p.smoothing == 0) return hit;  // an ignored label hits no class
  const Tensor counted = cast(not_equal(column, double(kIgnoredLabel)), dtype);
  return hit * (1 - p.smoothing) + counted * (p.smoothing / double(classes));
}

// [classes] → [classes, 1, …], to broadcast over logits.
Tensor over_classes(const Tensor& class_weights, int rank) {
  Shape shape = Shape::filled(rank - 1, 1);
  shape[0] = class_weights.shape()[0];
  return reshape(class_weights, shape);
}

}  // namespace

extern const OpDef cross_entropy_op = define(OpSpec<CrossEntropyParams>{
    .name = "cross_entropy",
    .inputs = {{"logits", any_float},
               {"labels", any_index},
               {.name = "class_weights", .dtypes = any_float, .optional = true}},
    .outputs = {{"loss"}, {"log_sum"}},
    .infer =
        [](auto& p, Types in) {
          expect_loss_inputs(p, in[0], in[1], in.size() > 2 ? &in[2] : nullptr);
          const TensorType record{in[0].dtype, in[1].shape};
          return TypeList{record, record};
        },
    .factors =
        [](auto&, Types in) {
          return loss_factors(in[0].shape, in.size() > 2 ? "L, R, b! -> R, R" : "L, R -> R, R");
        },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const RefTensor* weights = in.size() > 2 ? &in[2] : nullptr;
          for_each_record(in[0], in[1], [&](size_t k, const Record& r, const AxisView& v) {
            const double* x = in[0].f.data() + r.first;
            double top = -INFINITY, total = 0;
            for (int64_t c = 0; c < v.length; ++c) top = std::fmax(top, x[c * v.inner]);
            for (int64_t c = 0; c < v.length; ++c) total += std::exp(x[c * v.inner] - top);
            const double log_sum = top + std::log(total);
            out[1].f[k] = log_sum;
            if (!r.counted) return;
            for (int64_t c = 0; c < v.length; ++c)
              if (const double t = weighted_target(p, r, c, v.length, weights); t != 0)
                out[0].f[k] += t * (log_sum - x[c * v.inner]);
          });
        },
    .saves = {input(0), input(1), input(2), output(1)},
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          const bool weighted = s.input_count() > 2;
          Grads g(size_t(s.input_count()));
          const Tensor logits = s.input(0), labels = s.input(1), log_sum = s.output(1);
          if (s.needs(0) && dy[0]) {
            std::vector<Tensor> in{dy[0], logits, labels, log_sum};
            if (weighted) in.push_back(s.input(2));
            g[0] = apply(cross_entropy_grad_op, in, p)[0];
          }
          if (s.needs(0) && dy[1]) {
            const Tensor more = unsqueeze(dy[1], 1) * exp(logits - unsqueeze(log_sum, 1));
            g[0] = g[0] ? g[0] + more : more;
          }
          if (weighted && s.needs(2) && dy[0]) {
            Axes records;
            for (int i = 0; i < logits.rank(); ++i)
              if (i != 1) records.push_back(i);
            const Tensor t = targets(p, labels, logits.shape()[1], logits.dtype());
            g[2] = sum(t * (unsqueeze(log_sum, 1) - logits) * unsqueeze(dy[0], 1), records);
          }
          return g;
        },
    .cost =
        [](auto&, Types in, Types out) {
          return Cost{5 * double(in[0].numel()), traffic(in, out)};
        },
    .fusion = opaque("looks its labels up"),
    .onnx = no_onnx("a loss is no part of a deployed model"),
    .samples = {{{f32({4, 5}), i64({4}, 0, 5)}},
                {{f32({3, 4, 2}), i64({3, 2}, 0, 4), f32({4}, 0.5, 2)}, {.smoothing = 0.1}},
                {{f32({5, 3}), i32({5}, 0, 3)}, {.smoothing = 0.2}},
                {{f32({3, 3}), i64({3}, kIgnoredLabel, kIgnoredLabel + 1)}, {.smoothing = 0.1}},
                {{f32({0, 3}), i64({0}, 0, 3)}}},
});

extern const OpDef cross_entropy_grad_op = define(OpSpec<CrossEntropyParams>{
    .name = "cross_entropy_grad",
    .inputs = {{"dloss", any_float},
               {"logits", any_float},
               {"labels", any_index},
               {"log_sum", any_float},
               {.name = "class_weights", .dtypes = any_float, .optional = true}},
    .outputs = {{"dlogits"}},
    .infer =
        [](auto& p, Types in) {
          expect_loss_inputs(p, in[1], in[2], in.size() > 4 ? &in[4] : nullptr);
          check_same_dtype(std::array{in[1], in[0], in[3]}, {"logits", "dloss", "log_sum"});
          expect_shape("dloss", in[0], in[2].shape, "as the labels");
          expect_shape("log_sum", in[3], in[2].shape, "as the labels");
          return TypeList{in[1]};
        },
    .factors =
        [](auto&, Types in) {
          return loss_factors(in[1].shape,
                              in.size() > 4 ? "R, L, R, R, b! -> L" : "R, L, R, R -> L");
        },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const RefTensor* weights = in.size() > 4 ? &in[4] : nullptr;
          for_each_record(in[1], in[2], [&](size_t k, const Record& r, const AxisView& v) {
            if (!r.counted) return;
            double total = 0;
            for (int64_t c = 0; c < v.length; ++c)
              total += weighted_target(p, r, c, v.length, weights);
            for (int64_t c = 0; c < v.length; ++c) {
              const auto at = size_t(r.first + c * v.inner);
              out[0].f[at] = in[0].f[k] * (total * std::exp(in[1].f[at] - in[3].f[k]) -
                                           weighted_target(p, r, c, v.length, weights));
            }
          });
        },
    .saves = none("no gradient of its own"),
    .gradient = no_gradient("differentiated through its decomposition"),
    .cost =
        [](auto&, Types in, Types out) {
          return Cost{5 * double(in[1].numel()), traffic(in, out)};
        },
    .fusion = opaque("looks its labels up"),
    .onnx = no_onnx("only training needs it"),
    .samples =
        {{{f32({4}), f32({4, 5}), i64({4}, 0, 5), f32({4}, 1, 3)}},
         {{f32({3, 2}), f32({3, 4, 2}), i64({3, 2}, 0, 4), f32({3, 2}, 1, 3), f32({4}, 0.5, 2)},
          {.smoothing = 0.1}},
         {{f32({3}), f32({3, 3}), i64({3}, kIgnoredLabel, kIgnoredLabel + 1), f32({3}, 1, 3)},
          {.smoothing = 0.1}},
         {{f32({0}), f32({0, 3}), i64({0}, 0, 3), f32({0})}}},
    .decompose =
        [](auto& p, std::span<const Tensor> in) {
          const Tensor &logits = in[1], p_c = exp(logits - unsqueeze(in[3], 1));
          Tensor t = targets(p, in[2], logits.shape()[1], logits.dtype());
          if (in.size() > 4) t = t * over_classes(in[4], logits.rank());
          return std::vector{unsqueeze(in[0], 1) * (sum(t, {1}, Keep::yes) * p_c - t)};
        },
});

}  // namespace ops

Tensor cross_entropy_each(const Arg& logits, const Arg& labels, double smoothing) {
  return apply1(ops::cross_entropy_op, {logits.tensor(), labels.tensor(DType::i64)},
                ops::CrossEntropyParams{smoothing}, logits.site());
}

Tensor cross_entropy(const Arg& logits, const Arg& labels, double smoothing,
                     const Tensor& class_weights) {
  std::vector<Tensor> in{logits.tensor(), labels.tensor(DType::i64)};
  if (class_weights) in.push_back(class_weights);
  const CallSite site = logits.site();
  const auto at = [&](const Tensor& t) { return Arg(t, site.file, site.line); };
  const Tensor each = apply(ops::cross_entropy_op, in, ops::CrossEntropyParams{smoothing}, site)[0];
  Tensor counted = cast(at(not_equal(at(in[1]), double(ops::kIgnoredLabel))), each.dtype());
  if (class_weights) counted = at(counted) * at(gather(at(class_weights), maximum(at(in[1]), 0)));
  return at(sum(at(each))) / at(sum(at(counted)));
}

}  // namespace cairn
