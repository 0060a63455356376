// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of f32 logits and its gradient, record by record.
#include "ops/loss/cross_entropy.h"

#include <cmath>

#include "backends/cpu/backend.h"
#include "backends/cpu/reduce/exp_rows.h"
#include "ops/catalog.h"

namespace cairn::cpu {
namespace {

// What both kernels know of a call; operand numbers are those of the operator.
struct Problem {
  ops::AxisView view;  // around the classes
  double smoothing;
  bool wide_labels;                   // i64, else i32
  int logits, labels, class_weights;  // class_weights −1: none

  // The label of a record; kIgnoredLabel passes.
  int64_t label(const void* labels_at, int64_t row) const {
    const int64_t label = wide_labels ? static_cast<const int64_t*>(labels_at)[row]
                                      : static_cast<const int32_t*>(labels_at)[row];
    if (label != ops::kIgnoredLabel && (label < 0 || label >= view.length))
      ops::wrong_label(label, row, view.length);
    return label;
  }
  double weight(const float* weights, int64_t c) const {
    return weights ? double(weights[c]) : 1.0;
  }
};

Problem problem(const KernelRequest& r, bool gradient) {
  const int logits = gradient ? 1 : 0, labels = logits + 1, weights = gradient ? 4 : 2;
  return {ops::AxisView(r.in[size_t(logits)].shape, 1),
          r.params.as<ops::CrossEntropyParams>().smoothing,
          r.in[size_t(labels)].dtype == DType::i64,
          logits,
          labels,
          int(r.in.size()) > weights ? weights : -1};
}

const float* floats(const void* const* in, int i) {
  return i < 0 ? nullptr : static_cast<const float*>(in[i]);
}

class Loss : public PreparedKernel {
 public:
  explicit Loss(const Problem& p) : p_(p) {}
  void run(const void* const* in, void* const* out, void*) const override {
    const float* weights = floats(in, p_.class_weights);
    auto *loss = static_cast<float*>(out[0]), *log_sum = static_cast<float*>(out[1]);
    for_each_contiguous_row(
        p_.view, floats(in, p_.logits), nullptr, [&](int64_t row, const float* x, float*) {
          const int64_t classes = p_.view.length, label = p_.label(in[p_.labels], row);
          const ExpSum sum = exp_sum(x, classes, nullptr);
          const double log_total = std::log(double(sum.total));
          log_sum[row] = float(sum.top + log_total);
          loss[row] = 0;
          if (label == ops::kIgnoredLabel) return;
          const auto part = [&](int64_t c) {
            return p_.weight(weights, c) * (double(sum.top) - double(x[c]) + log_total);
          };
          double total = (1 - p_.smoothing) * part(label);
          if (p_.smoothing != 0)
            for (int64_t c = 0; c < classes; ++c) total += p_.smoothing / double(classes) * part(c);
          loss[row] = float(total);
        });
  }

 private:
  Problem p_;
};

class Gradient : public PreparedKernel {
 public:
  explicit Gradient(const Problem& p) : p_(p) {}
  void run(const void* const* in, void* const* out, void*) const override {
    const float *dloss = floats(in, 0), *log_sum = floats(in, 3),
                *weights = floats(in, p_.class_weights);
    const int64_t classes = p_.view.length;
    double all = 0;  // Σ_c w_c
    for (int64_t c = 0; c < classes; ++c) all += p_.weight(weights, c);
    for_each_contiguous_row(p_.view, floats(in, p_.logits), static_cast<float*>(out[0]),
                            [&](int64_t row, const float* x, float* y) {
                              const int64_t label = p_.label(in[p_.labels], row);
                              if (label == ops::kIgnoredLabel)
                                return void(std::fill_n(y, classes, 0.0f));
                              const double hit =
                                  dloss[row] * (1 - p_.smoothing) * p_.weight(weights, label);
                              const double each = dloss[row] * p_.smoothing / double(classes);
                              scaled_exp(x, classes, log_sum[row], float(hit + each * all), y);
                              y[label] = float(y[label] - hit);
                              if (each != 0)
                                for (int64_t c = 0; c < classes; ++c)
                                  y[c] = float(y[c] - each * p_.weight(weights, c));
                            });
  }

 private:
  Problem p_;
};

OfferResult offer(const KernelRequest& r, bool gradient) {
  const Problem p = problem(r, gradient);
  if (r.in[size_t(p.logits)].dtype != DType::f32)
    return Refusal{"takes f32 only, got " + std::string(name(r.in[size_t(p.logits)].dtype))};
  KernelOffer offer{std::vector<Layout>(r.in.size()), std::vector<Layout>(r.out.size())};
  if (gradient) offer.in_place = {{p.logits, 0}};
  return offer;
}
OfferResult offer_loss(const KernelRequest& r) { return offer(r, false); }
OfferResult offer_gradient(const KernelRequest& r) { return offer(r, true); }
std::unique_ptr<PreparedKernel> prepare_loss(const KernelRequest& r, const KernelOffer&) {
  return std::make_unique<Loss>(problem(r, false));
}
std::unique_ptr<PreparedKernel> prepare_gradient(const KernelRequest& r, const KernelOffer&) {
  return std::make_unique<Gradient>(problem(r, true));
}

}  // namespace

extern const Kernel cross_entropy_kernel{&ops::cross_entropy_op, "cpu.rows", offer_loss,
                                         prepare_loss};
extern const Kernel cross_entropy_grad_kernel{&ops::cross_entropy_grad_op, "cpu.rows",
                                              offer_gradient, prepare_gradient};

}  // namespace cairn::cpu
