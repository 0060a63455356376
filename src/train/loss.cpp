// SPDX-License-Identifier: Apache-2.0
#include <cairn/loss.h>
#include <fmt/format.h>

#include "train/text_form.h"

namespace cairn::loss {

Loss cross_entropy(const CrossEntropyOptions& o) {
  if (!(o.smoothing >= 0 && o.smoothing < 1))
    fail(ErrorCode::invalid_argument,
         fmt::format("cross_entropy: got smoothing = {}, expected 0 ≤ s < 1", o.smoothing));
  for (double w : o.class_weights)
    if (!(w >= 0) || w > 1e30)
      fail(ErrorCode::invalid_argument,
           fmt::format("cross_entropy: got the class weight {}, expected 0 or more", w));
  train::TextFormWriter text("cross_entropy");
  if (o.smoothing != 0) text.number("smoothing", o.smoothing);
  if (!o.class_weights.empty())
    text.word("class_weights", fmt::format("{}", fmt::join(o.class_weights, "/")));
  return {text.text(), true, [o](const Tensor& logits, const Tensor& labels) {
            Tensor weights;
            if (!o.class_weights.empty()) {
              weights = Tensor::from(o.class_weights, {int64_t(o.class_weights.size())});
              if (logits.dtype() != DType::f64) weights = cast(weights, logits.dtype());
            }
            return cairn::cross_entropy(logits, labels, o.smoothing, weights);
          }};
}

Loss mse() {
  return {"mse", false, [](const Tensor& output, const Tensor& target) {
            if (output.shape() != target.shape())
              fail(ErrorCode::shape_mismatch,
                   fmt::format("mse: got {} for targets {}", to_string(output.type()),
                               to_string(target.type())),
                   "Bring both to one shape; a silent broadcast would train on something else");
            return mean(square(output - target));
          }};
}

Loss parse(std::string_view text) {
  train::TextForm form("loss", text);
  if (form.name() == "mse") return form.finish(), mse();
  if (form.name() != "cross_entropy") form.unknown_name("cross_entropy, mse");
  CrossEntropyOptions o;
  form.number("smoothing", o.smoothing);
  if (auto weights = form.word("class_weights")) {
    size_t begin = 0;
    while (begin <= weights->size()) {
      const size_t end = std::min(weights->find('/', begin), weights->size());
      train::TextForm one("loss", "w:class_weights=" + weights->substr(begin, end - begin));
      o.class_weights.push_back(*one.number("class_weights"));
      begin = end + 1;
    }
  }
  form.finish();
  return cross_entropy(o);
}

}  // namespace cairn::loss
