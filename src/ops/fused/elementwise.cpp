// SPDX-License-Identifier: Apache-2.0
// Several elementwise operators as one: the compiler joins them so that memory is read and written
// once.
#include "core/strided.h"
#include "ops/catalog.h"
#include "ops/fused/program.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

FusedProgram inferred(const FusedElementwiseParams& p, Types in) {
  FusedProgram program = parse_program(p.program);
  infer_program(program, in);
  return program;
}

Shape full_shape(Types in) {
  Shape shape;
  for (const auto& t : in) shape = broadcast(shape, t.shape);
  return shape;
}

// One operand's axes, named from the right as the broadcast rule aligns them.
std::string factor_group(const Shape& shape, const Shape& full) {
  std::string text;
  for (int i = 0; i < shape.rank(); ++i) {
    const int axis = full.rank() - shape.rank() + i;
    if (i) text += ' ';
    text += shape[i] == 1 && full[axis] != 1 ? '1' : char('a' + axis);
  }
  return text;
}

// What storing the values and loading them again would leave of them.
void round_to_type(RefTensor& t) {
  visit_dtype(t.type.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (double& v : t.f) v = load_as<double>(store_as<T>(v));
    for (int64_t& v : t.i) v = load_as<int64_t>(store_as<T>(v));
  });
}

RefTensor sized(const TensorType& type) {
  RefTensor t{type, {}, {}};
  (t.is_float() ? t.f.resize(size_t(type.numel())) : t.i.resize(size_t(type.numel())));
  return t;
}

void run_reference(const FusedElementwiseParams& p, RefIn in, RefOut out) {
  TypeList types;
  for (const auto& t : in) types.push_back(t.type);
  const FusedProgram program = inferred(p, types);
  std::vector<RefTensor> made;
  const auto value = [&](int a) -> const RefTensor& {
    return a < 0 ? in[size_t(-1 - a)] : made[size_t(a)];
  };
  for (const FusedCall& c : program.calls) {
    std::vector<RefTensor> args;
    for (int a : c.args) args.push_back(value(a));
    RefTensor result = sized(c.type);
    c.op->reference(c.params, args, std::span(&result, 1));
    round_to_type(result);
    made.push_back(std::move(result));
  }
  for (size_t k = 0; k < out.size(); ++k)
    out[k].f = value(program.results[k]).f, out[k].i = value(program.results[k]).i;
}

}  // namespace

extern const OpDef fused_elementwise_op = define(OpSpec<FusedElementwiseParams>{
    .name = "fused_elementwise",
    .inputs = {{.name = "inputs", .variadic = true}},
    .outputs = {{.name = "results", .variadic = true}},
    .infer = [](auto& p, Types in) { return program_output_types(inferred(p, in), in); },
    .factors =
        [](auto& p, Types in) {
          const Shape full = full_shape(in);
          std::string text;
          for (const auto& t : in)
            text += (&t == in.data() ? "" : ", ") + factor_group(t.shape, full);
          const TypeList out = program_output_types(inferred(p, in), in);
          for (const auto& t : out)
            text += (&t == out.data() ? " -> " : ", ") + factor_group(t.shape, full);
          return text;
        },
    .reference = run_reference,
    .saves = none("no gradient"),
    .gradient = no_gradient("made by the compiler after differentiation"),
    .cost =
        [](auto& p, Types in, Types out) {
          const FusedProgram program = inferred(p, in);
          Cost cost{0, traffic(in, out)};
          for (const FusedCall& c : program.calls) {
            TypeList types;
            for (int a : c.args)
              types.push_back(a < 0 ? in[size_t(-1 - a)] : program.calls[size_t(a)].type);
            cost.flops += c.op->cost(c.params, types, std::span(&c.type, 1)).flops;
          }
          return cost;
        },
    .fusion = opaque("fused already"),
    .onnx = no_onnx("made by the compiler; export happens before"),
    .samples =
        {
            {{f32({2, 8, 3, 5}), f32({8, 1, 1}), f32({8, 1, 1})},
             {"t0 = mul(i0, i1); t1 = add(t0, i2); t2 = exp(t1) -> t2"}},
            {{f32({4, 70}), f32({4, 70}), f32({4, 70}), f32({})},
             {"t0 = mul(i0, i3); t1 = add(t0, i1); t2 = sub(i2, t1) -> t1, t2"}},
            {{f32({3, 1}), f32({1, 5}), i64({3, 5}, -3, 3)},
             {"t0 = less(i0, i1); t1 = cast{dtype=f32}(i2); t2 = select(t0, t1, i1) -> t2, t0"}},
            {{f32({2, 3, 4}), f32({3, 1})}, {"t0 = square(i1); t1 = sub(i0, t0) -> t1"}},
            {{f64({5}), f64({})}, {"t0 = maximum(i0, i1) -> t0, i0"}},
            {{f32({0, 5}), f32({5})}, {"t0 = add(i0, i1) -> t0"}},
        },
});

}  // namespace ops
}  // namespace cairn
