// SPDX-License-Identifier: Apache-2.0
// Losses as values that a trainer takes: a function and the text that names it in a recipe.
#pragma once
#include <cairn/ops.h>

namespace cairn::loss {

struct Loss {
  std::string recipe;       // "cross_entropy:smoothing=0.1"
  bool classifies = false;  // outputs are logits, targets class indices
  std::function<Tensor(const Tensor& output, const Tensor& target)> call;
  Tensor operator()(const Tensor& output, const Tensor& target) const {
    return call(output, target);
  }
};

struct CrossEntropyOptions {
  double smoothing = 0;
  std::vector<double> class_weights = {};  // one a class; the mean is then weighted, as PyTorch's
};
// Of logits [n, classes] and labels i64 [n].
CAIRN_API Loss cross_entropy(const CrossEntropyOptions& options = {});
// The mean of squared differences, over all elements; shapes must agree.
CAIRN_API Loss mse();
CAIRN_API Loss parse(std::string_view text);  // of a recipe

}  // namespace cairn::loss
