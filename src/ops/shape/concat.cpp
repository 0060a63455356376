// SPDX-License-Identifier: Apache-2.0
// Concat: inputs one after the other along an axis. stack is a concat along a new axis.
#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

struct ConcatParams {
  int64_t axis = 0;
  static constexpr auto fields = describe(field("axis", &ConcatParams::axis));
};

}  // namespace

extern const OpDef concat_op = define(OpSpec<ConcatParams>{
    .name = "concat",
    .inputs = {{"xs", any_dtype, true}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          check_same_dtype(in);
          Shape shape = in[0].shape;
          const int axis = normalize_axis(p.axis, shape.rank());
          for (size_t k = 1; k < in.size(); ++k) {
            Shape expected = in[0].shape;
            if (in[k].shape.rank() == expected.rank()) expected[axis] = in[k].shape[axis];
            if (in[k].shape != expected)
              wrong_input(std::to_string(k), in[k],
                          fmt::format("{} but for axis {}", to_string(in[0]), axis));
            shape[axis] += in[k].shape[axis];
          }
          return TypeList{{in[0].dtype, shape}};
        },
    .factors =
        [](auto& p, Types in) {
          const int rank = in[0].shape.rank(), axis = normalize_axis(p.axis, rank);
          std::string text;
          for (size_t k = 0; k < in.size(); ++k)
            text += (k ? ", " : "") + axis_names_with(rank, axis, fmt::format("x{}!", k));
          return text + " -> " + axis_names_with(rank, axis, "y!");
        },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const int axis = normalize_axis(p.axis, out[0].shape().rank());
          const AxisView y(out[0].shape(), axis);
          int64_t done = 0;
          for (const RefTensor& x : in) {
            const int64_t length = x.shape()[axis];
            for (int64_t o = 0; o < y.outer; ++o)
              for (int64_t i = 0; i < length * y.inner; ++i)
                out[0].copy((o * y.length + done) * y.inner + i, x, o * length * y.inner + i);
            done += length;
          }
        },
    .saves = none("elements only move"),
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          const int rank = dy[0].rank(), axis = normalize_axis(p.axis, rank);
          Grads g;
          std::vector<int64_t> begin(size_t(rank), 0),
              end(dy[0].shape().begin(), dy[0].shape().end());
          for (int k = 0; k < s.input_count(); ++k) {
            int64_t& from = begin[size_t(axis)];
            end[size_t(axis)] = from + s.input_type(k).shape[axis];
            g.push_back(s.needs(k) ? slice(dy[0], begin, end) : Tensor());
            from = end[size_t(axis)];
          }
          return g;
        },
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 0); },
    .fusion = opaque("writes several operands into one"),
    .onnx = OnnxMapping<ConcatParams>{"Concat", 13,
                                      [](auto& p, Types) {
                                        return OnnxCall{{{"axis", p.axis}}, {}};
                                      },
                                      [](const OnnxCall& c, Types) {
                                        return std::optional(ConcatParams{c.integer("axis", 0)});
                                      }},
    .samples = {{{f32({2, 3}), f32({2, 1}), f32({2, 4})}, {1}},
                {{f32({2, 3, 2}), f32({5, 3, 2})}, {0}},
                {{f32({4, 2})}, {-1}},
                {{i32({2, 2}, -9, 9), i32({2, 3}, -9, 9)}, {-1}},
                {{f32({0, 3}), f32({2, 3})}, {0}}},
});

}  // namespace ops

Tensor concat(const std::vector<Tensor>& xs, int64_t axis, CallSite site) {
  return apply(ops::concat_op, xs, ops::ConcatParams{axis}, site)[0];
}

Tensor stack(const std::vector<Tensor>& xs, int64_t axis, CallSite site) {
  std::vector<Tensor> rows;
  for (const Tensor& x : xs) rows.push_back(unsqueeze(Arg(x, site.file, site.line), axis));
  return concat(rows, axis, site);
}

}  // namespace cairn
