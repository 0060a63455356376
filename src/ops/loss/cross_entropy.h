// SPDX-License-Identifier: Apache-2.0
// Parameters of cross-entropy, for kernels and passes.
//
//   cross_entropy(logits, labels[, class_weights]) → loss, log_sum
//   cross_entropy_grad(dloss, logits, labels, log_sum[, class_weights]) → dlogits
// logits [n, classes, …]; labels, loss and log_sum [n, …]; class_weights [classes];
// log_sum = log Σ_c exp(logits_c).
#pragma once
#include <cairn/extend/params.h>

namespace cairn::ops {

inline constexpr int64_t kIgnoredLabel = -100;  // such a record has loss 0 and no gradient

// Fails for a label that is neither a class nor kIgnoredLabel.
[[noreturn]] void wrong_label(int64_t label, int64_t record, int64_t classes);

struct CrossEntropyParams {
  double smoothing = 0;  // ε: the target is 1 − ε + ε/classes for the label, ε/classes elsewhere
  static constexpr auto fields = describe(field("smoothing", &CrossEntropyParams::smoothing));
};

}  // namespace cairn::ops
