// SPDX-License-Identifier: Apache-2.0
// Pad with a constant: `before` and `after` elements on each axis.
#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

struct PadParams {
  std::vector<int64_t> before, after;  // one entry an axis
  double value = 0;
  static constexpr auto fields =
      describe(field("before", &PadParams::before), field("after", &PadParams::after),
               field("value", &PadParams::value));
};

}  // namespace

extern const OpDef pad_op = define(OpSpec<PadParams>{
    .name = "pad",
    .inputs = {{"x"}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          Shape shape = in[0].shape;
          if (int(p.before.size()) != shape.rank() || int(p.after.size()) != shape.rank())
            wrong_param("before and after",
                        fmt::format("{} and {} entries", p.before.size(), p.after.size()),
                        fmt::format("{}, one an axis of {}", shape.rank(), to_string(in[0])));
          for (int i = 0; i < shape.rank(); ++i) {
            const int64_t before = p.before[size_t(i)], after = p.after[size_t(i)];
            if (before < 0 || after < 0 || __builtin_add_overflow(shape[i], before, &shape[i]) ||
                __builtin_add_overflow(shape[i], after, &shape[i]))
              wrong_param("before and after",
                          fmt::format("{} and {} for axis {}", before, after, i),
                          "0 or more (slice cuts off), and a length below 2^63");
          }
          return TypeList{{in[0].dtype, shape}};
        },
    .factors =
        [](auto& p, Types in) {
          return factors_where(in[0].shape.rank(), [&](int i) {
            return p.before[size_t(i)] + p.after[size_t(i)] == 0;
          });
        },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const Shape &x = in[0].shape(), strides = dense_strides(out[0].shape());
          fill(out[0], p.value);
          for (int64_t k = 0; k < in[0].numel(); ++k) {
            int64_t rest = k, at = 0;
            for (int i = x.rank() - 1; i >= 0; rest /= x[i--])
              at += (rest % x[i] + p.before[size_t(i)]) * strides[i];
            out[0].copy(at, in[0], k);
          }
        },
    .saves = none("elements only move"),
    .gradient =
        [](auto& p, const Saved& s, std::span<const Tensor> dy) {
          std::vector<int64_t> end = p.before;
          for (size_t i = 0; i < end.size(); ++i) end[i] += s.input_type(0).shape[int(i)];
          return grads(slice(dy[0], p.before, end));
        },
    .cost =
        [](auto&, Types in, Types out) {
          return Cost{0, traffic(in, out)};
        },
    .fusion = opaque("writes its input among constants"),
    .onnx = OnnxMapping<PadParams>{"Pad", 13,
                                   [](auto& p, Types in) {
                                     std::vector<int64_t> pads = p.before;
                                     pads.insert(pads.end(), p.after.begin(), p.after.end());
                                     return OnnxCall{
                                         {{"mode", std::string("constant")}},
                                         {{1, Tensor::from(pads, {int64_t(pads.size())})},
                                          {2, scalar_of(p.value, in[0].dtype)}}};
                                   },
                                   [](const OnnxCall& c, Types) -> std::optional<PadParams> {
                                     if (c.text("mode", "constant") != "constant" || !c.constant(1))
                                       return std::nullopt;
                                     const auto pads = c.constant(1)->template values<int64_t>();
                                     const auto half = pads.begin() + int64_t(pads.size() / 2);
                                     return PadParams{{pads.begin(), half},
                                                      {half, pads.end()},
                                                      c.constant(2) ? c.constant(2)->item() : 0};
                                   }},
    .samples = {{{f32({2, 3})}, {{1, 0}, {0, 2}, 0.5}},
                {{f32({2, 1, 4})}, {{0, 0, 1}, {0, 0, 1}}},
                {{i32({2, 2}, -9, 9)}, {{1, 1}, {1, 0}, 7}},
                {{f32({0, 2})}, {{1, 0}, {1, 0}, -1}}},
});

}  // namespace ops

Tensor pad(const Arg& x, const std::vector<int64_t>& before, const std::vector<int64_t>& after,
           double value) {
  return apply1(ops::pad_op, {x.tensor()}, ops::PadParams{before, after, value}, x.site());
}

}  // namespace cairn
