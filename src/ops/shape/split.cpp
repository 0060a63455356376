// SPDX-License-Identifier: Apache-2.0
// Split: parts of given lengths along an axis, one output each; the reverse of concat.
#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

struct SplitParams {
  std::vector<int64_t> lengths;
  int64_t axis = 0;
  static constexpr auto fields =
      describe(field("lengths", &SplitParams::lengths), field("axis", &SplitParams::axis));
};

}  // namespace

extern const OpDef split_op = define(OpSpec<SplitParams>{
    .name = "split",
    .inputs = {{"x"}},
    .outputs = {{"ys", any_dtype, true}},
    .infer =
        [](auto& p, Types in) {
          const int axis = normalize_axis(p.axis, in[0].shape.rank());
          TypeList out;
          int64_t rest = in[0].shape[axis];
          for (int64_t length : p.lengths) {
            if (length < 0 || length > rest) rest = -1;
            if (rest < 0) break;
            rest -= length;
            out.push_back(in[0]);
            out.back().shape[axis] = length;
          }
          if (rest != 0 || p.lengths.empty())
            wrong_param("lengths", to_string(ParamValue(p.lengths)),
                        fmt::format("lengths that add up to {}, axis {} of input x, {}",
                                    in[0].shape[axis], axis, to_string(in[0])));
          return out;
        },
    .factors =
        [](auto& p, Types in) {
          const int rank = in[0].shape.rank(), axis = normalize_axis(p.axis, rank);
          std::string text = axis_names(rank, {axis}) + " -> ";
          for (size_t k = 0; k < p.lengths.size(); ++k)
            text += (k ? ", " : "") + axis_names_with(rank, axis, fmt::format("y{}!", k));
          return text;
        },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const int axis = normalize_axis(p.axis, in[0].shape().rank());
          const AxisView x(in[0].shape(), axis);
          int64_t done = 0;
          for (RefTensor& y : out) {
            const int64_t length = y.shape()[axis];
            for (int64_t o = 0; o < x.outer; ++o)
              for (int64_t i = 0; i < length * x.inner; ++i)
                y.copy(o * length * x.inner + i, in[0], (o * x.length + done) * x.inner + i);
            done += length;
          }
        },
    .saves = none("elements only move"),
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          std::vector<Tensor> parts;
          for (size_t k = 0; k < dy.size(); ++k) {
            const TensorType& t = s.output_type(int(k));
            parts.push_back(dy[k].defined() ? dy[k] : full(t.shape, 0, t.dtype));
          }
          return grads(concat(parts, p.axis));
        },
    .cost =
        [](auto&, Types in, Types out) {
          return Cost{0, traffic(in, out)};
        },
    .fusion = opaque("has several outputs"),
    .onnx =
        OnnxMapping<SplitParams>{
            "Split", 13,
            [](auto& p, Types) {
              return OnnxCall{{{"axis", p.axis}},
                              {{1, Tensor::from(p.lengths, {int64_t(p.lengths.size())})}}};
            },
            [](const OnnxCall& c, Types) -> std::optional<SplitParams> {
              if (!c.constant(1))
                return std::nullopt;  // equal parts: the node's outputs say how many
              return SplitParams{c.constant(1)->values<int64_t>(), c.integer("axis", 0)};
            }},
    .samples = {{{f32({2, 5})}, {{2, 3}, 1}},
                {{f32({4, 2, 3})}, {{1, 1, 2}, 0}},
                {{f32({3, 2})}, {{2}, -1}},
                {{i32({2, 4}, -9, 9)}, {{0, 4}, -1}},
                {{f32({0, 3})}, {{1, 2}, 1}}},
});

}  // namespace ops

std::vector<Tensor> split(const Arg& x, const std::vector<int64_t>& lengths, int64_t axis) {
  const Tensor t = x.tensor();
  return apply(ops::split_op, std::span(&t, 1), ops::SplitParams{lengths, axis}, x.site());
}

}  // namespace cairn
