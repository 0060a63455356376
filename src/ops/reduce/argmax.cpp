// SPDX-License-Identifier: Apache-2.0
// Argmax and argmin along one axis: i64, the first of equals; NaN wins, as in max and min.
#include <cmath>

#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

struct ArgParams {
  int64_t axis = -1;
  bool keep = false;  // keep the axis with length 1
  static constexpr auto fields =
      describe(field("axis", &ArgParams::axis), field("keep", &ArgParams::keep));
};

// better(x, y): does x beat the best so far?
OpDef arg_extreme(std::string name, std::string onnx, bool (*better)(double, double),
                  bool (*better_integer)(int64_t, int64_t), const char* file = __builtin_FILE()) {
  return define(
      OpSpec<ArgParams>{
          .name = std::move(name),
          .inputs = {{"x", any_number}},
          .outputs = {{"index"}},
          .infer =
              [](auto& p, Types in) {
                Shape shape = in[0].shape;
                const int axis = normalize_axis(p.axis, shape.rank());
                if (shape[axis] == 0)
                  wrong_input("x", in[0], fmt::format("at least one element along axis {}", axis));
                if (p.keep)
                  shape[axis] = 1;
                else
                  shape.erase(axis);
                return TypeList{{DType::i64, shape}};
              },
          .factors =
              [](auto& p, Types in) {
                const int rank = in[0].shape.rank(), axis = normalize_axis(p.axis, rank);
                return axis_names(rank, {axis}) + " -> " +
                       axis_names_with(rank, axis, p.keep ? "1" : "");
              },
          .reference =
              [=](auto& p, RefIn in, RefOut out) {
                const AxisView v(in[0].shape(), normalize_axis(p.axis, in[0].shape().rank()));
                for (int64_t o = 0; o < v.outer; ++o)
                  for (int64_t i = 0; i < v.inner; ++i) {
                    const auto at = [&](int64_t k) {
                      return size_t((o * v.length + k) * v.inner + i);
                    };
                    int64_t best = 0;
                    for (int64_t k = 1; k < v.length; ++k)
                      if (in[0].is_float() ? better(in[0].f[at(k)], in[0].f[at(best)])
                                           : better_integer(in[0].i[at(k)], in[0].i[at(best)]))
                        best = k;
                    out[0].i[size_t(o * v.inner + i)] = best;
                  }
              },
          .saves = none("no gradient"),
          .gradient = no_gradient("integer output"),
          .cost =
              [](auto&, Types in, Types out) {
                return Cost{double(in[0].numel()), traffic(in, out)};
              },
          .fusion = opaque("yields positions"),
          .onnx =
              OnnxMapping<ArgParams>{
                  std::move(onnx), 13,
                  [](auto& p, Types) {
                    return OnnxCall{{{"axis", p.axis}, {"keepdims", int64_t(p.keep)}}, {}};
                  },
                  [](const OnnxCall& c, Types) -> std::optional<ArgParams> {
                    if (c.integer("select_last_index", 0)) return std::nullopt;
                    return ArgParams{c.integer("axis", 0), c.integer("keepdims", 1) != 0};
                  }},
          .samples = {{{f32({2, 3})}},
                      {{f32({4, 1, 7})}, {.axis = 0, .keep = true}},
                      {{i32({3, 5}, -2, 3)}, {.axis = 1}},
                      {{f32({3, 0})}, {.axis = 0}}},
      },
      file);
}

}  // namespace

extern const OpDef argmax_op = arg_extreme(
    "argmax", "ArgMax",
    [](double x, double best) { return x > best || (std::isnan(x) && !std::isnan(best)); },
    [](int64_t x, int64_t best) { return x > best; });
extern const OpDef argmin_op = arg_extreme(
    "argmin", "ArgMin",
    [](double x, double best) { return x < best || (std::isnan(x) && !std::isnan(best)); },
    [](int64_t x, int64_t best) { return x < best; });

}  // namespace ops

Tensor argmax(const Arg& x, int64_t axis, Keep keep) {
  return apply1(ops::argmax_op, {x.tensor()}, ops::ArgParams{axis, keep == Keep::yes}, x.site());
}
Tensor argmin(const Arg& x, int64_t axis, Keep keep) {
  return apply1(ops::argmin_op, {x.tensor()}, ops::ArgParams{axis, keep == Keep::yes}, x.site());
}

}  // namespace cairn
