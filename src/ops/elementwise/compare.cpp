// SPDX-License-Identifier: Apache-2.0
// The table of comparisons (any dtype → bool; with NaN only not_equal holds) and of logic on bools.
#include "ops/catalog.h"
#include "ops/elementwise/binary.h"

namespace cairn {
namespace ops {
namespace {

Binary comparison(std::string name, double (*real)(double, double),
                  int64_t (*integer)(int64_t, int64_t)) {
  return {.name = std::move(name),
          .dtypes = any_dtype,
          .real = real,
          .integer = integer,
          .result = DType::boolean,
          .saves = none("no gradient"),
          .gradient = no_gradient("bool output"),
          .onnx = no_onnx("set below")};
}

using Comparison = Tensor(const Arg&, const Arg&);

// ONNX orders numbers only; bools go through i32. `mirror` is the comparison with the sides
// swapped.
OpDef ordering(Binary b, std::string onnx, int since, Comparison* self, Comparison* mirror) {
  b.onnx = OnnxMapping<NoParams>{std::move(onnx), since,
                                 [](auto&, Types in) {
                                   if (in[0].dtype == DType::boolean)
                                     fail(ErrorCode::unsupported,
                                          "ONNX does not order bools; use the decomposition");
                                   return OnnxCall{};
                                 },
                                 [](const OnnxCall&, Types) { return std::optional(NoParams{}); }};
  b.decompose = [=](const Tensor& x, const Tensor& y) {
    return x.dtype() == DType::boolean ? self(cast(x, DType::i32), cast(y, DType::i32))
                                       : mirror(y, x);
  };
  return binary(std::move(b));
}

Binary logic(std::string name, int64_t (*integer)(int64_t, int64_t), std::string onnx) {
  return {.name = std::move(name),
          .dtypes = boolean_only,
          .integer = integer,
          .saves = none("no gradient"),
          .gradient = no_gradient("bool output"),
          .onnx = onnx_plain(std::move(onnx), 7)};
}

// One formula for doubles and integers.
#define CAIRN_COMPARE(name, sign)                                \
  comparison(                                                    \
      name, [](double a, double b) { return double(a sign b); }, \
      [](int64_t a, int64_t b) { return int64_t(a sign b); })

}  // namespace

extern const OpDef equal_op = [] {
  Binary b = CAIRN_COMPARE("equal", ==);
  b.onnx = onnx_plain("Equal", 13);
  return binary(std::move(b));
}();
extern const OpDef not_equal_op = [] {
  Binary b = CAIRN_COMPARE("not_equal", !=);
  b.onnx = no_onnx("written as Not(Equal)");
  b.decompose = [](auto& x, auto& y) { return logical_not(equal(x, y)); };
  return binary(std::move(b));
}();
extern const OpDef less_op = ordering(CAIRN_COMPARE("less", <), "Less", 13, less, greater);
extern const OpDef less_equal_op =
    ordering(CAIRN_COMPARE("less_equal", <=), "LessOrEqual", 16, less_equal, greater_equal);
extern const OpDef greater_op = ordering(CAIRN_COMPARE("greater", >), "Greater", 13, greater, less);
extern const OpDef greater_equal_op =
    ordering(CAIRN_COMPARE("greater_equal", >=), "GreaterOrEqual", 16, greater_equal, less_equal);
#undef CAIRN_COMPARE

extern const OpDef logical_and_op = binary(logic(
    "logical_and", [](int64_t a, int64_t b) { return a & b; }, "And"));
extern const OpDef logical_or_op = binary(logic(
    "logical_or", [](int64_t a, int64_t b) { return a | b; }, "Or"));

extern const OpDef logical_not_op = define(OpSpec<NoParams>{
    .name = "logical_not",
    .inputs = {{"x", boolean_only}},
    .outputs = {{"y"}},
    .infer = [](auto&, Types in) { return TypeList{in[0]}; },
    .factors = [](auto&, Types in) { return broadcast_factors(in, in[0].shape); },
    .reference =
        [](auto&, RefIn in, RefOut out) {
          for (size_t k = 0; k < in[0].i.size(); ++k) out[0].i[k] = !in[0].i[k];
        },
    .saves = none("no gradient"),
    .gradient = no_gradient("bool output"),
    .cost = [](auto&, Types in, Types out) { return elementwise_cost(in, out, 1); },
    .fusion = elementwise(),
    .onnx = onnx_plain("Not", 1),
    .samples = {{{boolean({2, 3})}}, {{boolean({})}}, {{boolean({4, 0})}}},
});

}  // namespace ops

Tensor equal(const Arg& a, const Arg& b) { return ops::call_binary(ops::equal_op, a, b); }
Tensor not_equal(const Arg& a, const Arg& b) { return ops::call_binary(ops::not_equal_op, a, b); }
Tensor less(const Arg& a, const Arg& b) { return ops::call_binary(ops::less_op, a, b); }
Tensor less_equal(const Arg& a, const Arg& b) { return ops::call_binary(ops::less_equal_op, a, b); }
Tensor greater(const Arg& a, const Arg& b) { return ops::call_binary(ops::greater_op, a, b); }
Tensor greater_equal(const Arg& a, const Arg& b) {
  return ops::call_binary(ops::greater_equal_op, a, b);
}
Tensor logical_and(const Arg& a, const Arg& b) {
  return ops::call_binary(ops::logical_and_op, a, b);
}
Tensor logical_or(const Arg& a, const Arg& b) { return ops::call_binary(ops::logical_or_op, a, b); }
Tensor logical_not(const Arg& x) { return apply1(ops::logical_not_op, {x.tensor()}, {}, x.site()); }

}  // namespace cairn
