// SPDX-License-Identifier: Apache-2.0
// Transpose: axis i of the output is axis order[i] of the input.
#include <utility>

#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

struct TransposeParams {
  std::vector<int64_t> order;
  static constexpr auto fields = describe(field("order", &TransposeParams::order));
};

std::vector<int> checked(const TransposeParams& p, int rank) {
  std::vector<int> order;
  std::vector<char> seen(size_t(rank), 0);
  bool good = int(p.order.size()) == rank;
  for (int64_t axis : p.order) {
    good = good && axis >= -rank && axis < rank;
    if (!good) break;
    order.push_back(int(axis < 0 ? axis + rank : axis));
    good = !std::exchange(seen[size_t(order.back())], 1);
  }
  if (!good)
    wrong_param("order", to_string(ParamValue(p.order)),
                fmt::format("each of the {} axes of input x once", rank));
  return order;
}

Shape pick(const Shape& s, const std::vector<int>& order) {
  Shape out;
  for (int axis : order) out.push_back(s[axis]);
  return out;
}

}  // namespace

extern const OpDef transpose_op = define(OpSpec<TransposeParams>{
    .name = "transpose",
    .inputs = {{"x"}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          return TypeList{{in[0].dtype, pick(in[0].shape, checked(p, in[0].shape.rank()))}};
        },
    .factors =
        [](auto& p, Types in) {
          std::string text = axis_names(in[0].shape.rank()) + " ->";
          for (int axis : checked(p, in[0].shape.rank()))
            text += std::string(" ") + char('a' + axis);
          return text;
        },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const Shape strides =
              pick(dense_strides(in[0].shape()), checked(p, in[0].shape().rank()));
          const Shape& shape = out[0].shape();
          for (int64_t k = 0; k < out[0].numel(); ++k) {
            int64_t rest = k, from = 0;
            for (int i = shape.rank() - 1; i >= 0; rest /= shape[i--])
              from += rest % shape[i] * strides[i];
            out[0].copy(k, in[0], from);
          }
        },
    .saves = none("elements only move"),
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          const auto order = checked(p, s.input_type(0).shape.rank());
          Axes back(order.size());
          for (size_t i = 0; i < order.size(); ++i) back[size_t(order[i])] = int64_t(i);
          return grads(transpose(dy[0], back));
        },
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 0); },
    .fusion = view_only(),
    .onnx = OnnxMapping<TransposeParams>{"Transpose", 13,
                                         [](auto& p, Types) {
                                           return OnnxCall{{{"perm", p.order}}, {}};
                                         },
                                         [](const OnnxCall& c, Types in) {
                                           std::vector<int64_t> reversed;
                                           for (int i = in[0].shape.rank() - 1; i >= 0; --i)
                                             reversed.push_back(i);
                                           return std::optional(
                                               TransposeParams{c.integers("perm", reversed)});
                                         }},
    .samples = {{{f32({2, 3})}, {{1, 0}}},
                {{f32({2, 3, 4, 5})}, {{0, 2, 3, 1}}},
                {{f32({2, 1, 3, 2, 1, 2})}, {{5, 3, 1, 0, 2, 4}}},
                {{f32({})}, {{}}},
                {{f32({3, 0, 2})}, {{2, 0, 1}}}},
    .view =
        [](auto& p, const StridedView& in, Types) {
          const auto order = checked(p, in.shape.rank());
          return std::optional(
              StridedView{pick(in.shape, order), pick(in.strides, order), in.offset});
        },
});

}  // namespace ops

Tensor transpose(const Arg& x, const Axes& order) {
  return apply1(ops::transpose_op, {x.tensor()}, ops::TransposeParams{order}, x.site());
}

Tensor transpose(const Arg& x) {
  const int rank = x.tensor().rank();
  if (rank < 2)
    fail(ErrorCode::shape_mismatch,
         fmt::format("transpose: input x: got {}, expected at least two axes",
                     to_string(x.tensor().type())));
  Axes order(size_t(rank), 0);
  for (int i = 0; i < rank; ++i) order[size_t(i)] = i;
  std::swap(order[size_t(rank - 1)], order[size_t(rank - 2)]);
  return transpose(x, order);
}

}  // namespace cairn
