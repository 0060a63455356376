// SPDX-License-Identifier: Apache-2.0
#include <cairn/ops.h>
#include <fmt/format.h>

#include <limits>

#include "backends/cpu/simd_test.h"
#include "ops/catalog.h"
#include "ops/fused/program.h"

namespace cairn::cpu {
namespace {

constexpr std::string_view kName = "cpu.strips";
constexpr float kUlp = 0x1p-23f;

Ran run(const OpDef& op, const Params& params, const std::vector<Dense>& in, const How& how = {}) {
  return run_on(kernel_named(op, kName), op, params, in, how);
}
Ran run_fused(const std::string& program, const std::vector<Dense>& in, const How& how = {}) {
  return run(ops::fused_elementwise_op, ops::FusedElementwiseParams{program}, in, how);
}

bool is_exact(std::string_view op) {  // one IEEE operation, or a choice between values
  for (std::string_view other :
       {"pow", "exp", "log", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid", "softplus", "gelu",
        "silu", "silu_grad", "hardsigmoid", "hardswish", "elu", "leaky_relu", "clamp"})
    if (op == other) return false;
  return true;
}

TEST(Elementwise, EveryOperatorHasAKernelThatAgreesWithItsReference) {
  int operators = 0;
  for_each_target([&](const char*) {
    for (const OpDef* op : all_ops()) {
      if (op->fusion.kind != FusionClass::elementwise || op->inputs.empty()) continue;
      SCOPED_TRACE(op->name);
      ASSERT_NE(kernel_named(*op, kName), nullptr);
      ++operators;
      for (const auto& sample : op->samples)
        for (const bool larger : {false, true}) {
          std::vector<SampleInput> inputs = sample.inputs;
          for (SampleInput& i : inputs)  // beyond one strip, not a multiple of any vector
            if (larger)
              for (int a = 0; a < i.type.shape.rank(); ++a)
                if (i.type.shape[a] > 1) i.type.shape[a] = i.type.shape[a] * 17 + 1;
          const auto in = random_inputs(inputs, 3);
          const Ran ran = run(*op, sample.params, in, {.threads = 2});
          if (ran.refusal.starts_with("no vector form of cast")) continue;  // 8- and 16-bit types
          ASSERT_EQ(ran.refusal, "");
          const auto want = run_reference_on(*op, sample.params, in);
          const bool exact = is_exact(op->name),
                     cancels = op->name.starts_with("hard") || op->name == "silu_grad";  // near their zeros
          expect_close(ran.out, want, exact ? 0 : 5 * kUlp, exact ? 0 : cancels ? 1e-6 : 1e-37);
        }
    }
  });
  EXPECT_GE(operators, 45);
}

TEST(Elementwise, FunctionsAreRightForSpecialValues) {
  const double inf = std::numeric_limits<double>::infinity(),
               nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> values{
      0.0,    -0.0,    1,    -1,   inf,   -inf, nan,   1e-40,   -1e-40, 1.17549435e-38,
      3.4e38, -3.4e38, 88.6, 88.8, -87.2, -88,  -103,  -105,    104,    105,
      1e5,    -1e5,    3e9,  0.5,  1.5,   2.5,  -2.5,  8388609, 1e-20,  18.7,
      9.01,   -9.2,    12,   -12,  3,     -3,   40000, 5e6};
  Dense x = dense_of({DType::f32, {int64_t(values.size())}});
  for (size_t k = 0; k < values.size(); ++k) x.set(int64_t(k), values[k]);
  for_each_target([&](const char*) {
    for (const OpDef* op : all_ops()) {
      if (op->fusion.kind != FusionClass::elementwise || op->inputs.size() != 1 ||
          op->name == "cast" || !contains(op->inputs[0].dtypes, DType::f32))
        continue;
      SCOPED_TRACE(op->name);
      const Params params = op->samples[0].params;
      const auto got = run(*op, params, {x}),
                 want = Ran{{}, {}, run_reference_on(*op, params, {x})};
      for (int64_t k = 0; k < x.type.numel(); ++k) {
        double g = got.out[0].at(k), w = want.out[0].at(k);
        if (op->name == "softplus" && x.at(k) == inf) w = inf;
        if ((std::isnan(g) && std::isnan(w)) || g == w) continue;
        EXPECT_LE(std::fabs(g - w), 8 * kUlp * std::fabs(w) + 1e-37)
            << "of " << x.at(k) << ": " << g << " vs " << w;
      }
    }
  });
}

TEST(Elementwise, FunctionsAreWithinFourUlp) {
  struct Case {
    const OpDef* op;
    double low, high, ulp;
  };
  const std::vector<Case> cases{
      {&ops::exp_op, -87, 88.7, 2}, {&ops::log_op, 1e-30, 10, 4},   {&ops::log_op, 0.9, 1.1, 4},
      {&ops::tanh_op, -10, 10, 4},  {&ops::tanh_op, -0.5, 0.5, 4},  {&ops::erf_op, -4, 4, 4},
      {&ops::erf_op, -0.1, 0.1, 4}, {&ops::sigmoid_op, -80, 80, 4}, {&ops::softplus_op, -80, 80, 4},
      {&ops::silu_op, -80, 80, 4},  {&ops::gelu_op, -5, 8, 8},      {&ops::sin_op, -100, 100, 4},
      {&ops::cos_op, -100, 100, 4}, {&ops::elu_op, -20, 5, 5},      {&ops::softplus_op, -1, 1, 4}};
  for_each_target([&](const char* target) {
    for (const Case& c : cases) {
      const Dense x = random_dense({DType::f32, {200000}}, 5, c.low, c.high);
      const Params params = c.op->samples[0].params;
      const auto got = run(*c.op, params, {x}).out[0];
      const auto want = run_reference_on(*c.op, params, {[&] {
        Dense d = dense_of({DType::f64, x.type.shape});
        for (int64_t k = 0; k < x.type.numel(); ++k) d.set(k, x.at(k));
        return d;
      }()})[0];
      double worst = 0;
      for (int64_t k = 0; k < x.type.numel(); ++k) {
        const double w = want.at(k);
        int exponent;
        std::frexp(w, &exponent);
        const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
        worst = std::max(worst, std::fabs(got.at(k) - w) / unit);
      }
      // Sines near a multiple of π: the unit is that of the argument, not of the result.
      if (c.op == &ops::sin_op || c.op == &ops::cos_op) {
        worst = 0;
        for (int64_t k = 0; k < x.type.numel(); ++k)
          worst = std::max(worst, std::fabs(got.at(k) - want.at(k)) / kUlp);
      }
      EXPECT_LE(worst, c.ulp) << c.op->name << " over " << c.low << " … " << c.high << " on "
                              << target;
      RecordProperty(fmt::format("{}_{}_{}", target, c.op->name, c.low),
                     fmt::format("{:.2f}", worst));
      if (std::getenv("CAIRN_TEST_VERBOSE"))
        fmt::print("{} {} [{}, {}]: {:.2f} ulp\n", target, c.op->name, c.low, c.high, worst);
    }
  });
}

// A random program over the given inputs, in which every call is used.
std::string random_program(Random& random, const TypeList& in, int calls) {
  ops::FusedProgram program;
  std::vector<std::pair<int, TensorType>> values;
  for (size_t k = 0; k < in.size(); ++k) values.emplace_back(-1 - int(k), in[k]);
  const auto pick = [&](auto&& wanted) -> std::pair<int, TensorType> {
    for (int tries = 0; tries < 100; ++tries) {  // the newest often, so that chains grow
      const auto& v =
          random.below(2) ? values.back() : values[random.below(uint32_t(values.size()))];
      if (wanted(v.second)) return v;
    }
    return {0, {}};
  };
  const auto with = [](DType d) { return [d](const TensorType& t) { return t.dtype == d; }; };
  while (int(program.calls.size()) < calls) {
    std::vector<std::pair<int, TensorType>> args;
    const OpDef* op = nullptr;
    Params params;
    const std::vector<const OpDef*> unary{&ops::relu_op,   &ops::neg_op,     &ops::abs_op,
                                          &ops::square_op, &ops::exp_op,     &ops::tanh_op,
                                          &ops::sqrt_op,   &ops::sigmoid_op, &ops::leaky_relu_op};
    const std::vector<const OpDef*> binary{&ops::add_op, &ops::sub_op, &ops::mul_op,
                                           &ops::mul_op, &ops::div_op, &ops::maximum_op,
                                           &ops::add_op};
    const std::vector<const OpDef*> compare{&ops::less_op, &ops::equal_op, &ops::greater_equal_op};
    switch (random.below(8)) {
      case 0:
      case 1:
        op = unary[random.below(uint32_t(unary.size()))], args = {pick(with(DType::f32))};
        break;
      case 2:
      case 3:
      case 4:
        op = binary[random.below(uint32_t(binary.size()))];
        args = {pick(with(DType::f32)), pick(with(DType::f32))};
        break;
      case 5:
        op = compare[random.below(3)];
        args = {pick(with(DType::f32)), pick(with(DType::f32))};
        break;
      case 6:
        op = &ops::select_op;
        args = {pick(with(DType::boolean)), pick(with(DType::f32)), pick(with(DType::f32))};
        break;
      case 7:
        op = &ops::cast_op;
        params = op->make_params({{"dtype", DType::f32}});
        args = {pick([](auto& t) { return t.dtype != DType::f32; })};
        break;
    }
    if (std::ranges::any_of(args, [](auto& a) { return a.second == TensorType() && a.first == 0; }))
      continue;
    if (op->name == "leaky_relu") params = op->make_params({{"slope", 0.1}});
    TypeList types;
    ops::FusedCall call{op, params, {}, {}};
    for (auto& a : args) types.push_back(a.second), call.args.push_back(a.first);
    call.type = op->infer(params, types)[0];
    values.emplace_back(int(program.calls.size()), call.type);
    program.calls.push_back(call);
  }
  std::vector<char> used(program.calls.size());
  for (auto& c : program.calls)
    for (int a : c.args)
      if (a >= 0) used[size_t(a)] = true;
  for (size_t k = 0; k < used.size(); ++k)
    if (!used[k] || random.below(6) == 0) program.results.push_back(int(k));
  return program.to_string();
}

// Runs the calls one by one, each by its own kernel.
std::vector<Dense> run_unfused(const std::string& text, const std::vector<Dense>& in) {
  ops::FusedProgram program = ops::parse_program(text);
  ops::infer_program(program, types_of(in));
  std::vector<Dense> made;
  const auto value = [&](int a) { return a < 0 ? in[size_t(-1 - a)] : made[size_t(a)]; };
  for (const auto& c : program.calls) {
    std::vector<Dense> args;
    for (int a : c.args) args.push_back(value(a));
    made.push_back(run(*c.op, c.params, args).out[0]);
  }
  std::vector<Dense> out;
  for (int r : program.results) out.push_back(value(r));
  return out;
}

TEST(FusedElementwise, GivesTheBitsOfTheOperatorsRunOneByOne) {
  const std::vector<std::pair<Shape, std::vector<Shape>>> shapes{
      {{2, 16, 7, 7}, {{16, 1, 1}, {1, 16, 1, 1}, {}, {7}, {2, 1, 1, 1}, {7, 1}, {2, 16, 1, 1}}},
      {{2, 32, 3, 5}, {{32, 1, 1}, {3, 5}, {1, 32, 3, 1}, {32, 3, 5}}},
      {{1, 8, 40, 33}, {{8, 1, 1}, {33}, {40, 1}, {1, 1, 1, 1}}},
      {{37, 70}, {{70}, {37, 1}, {}, {1, 70}}},
      {{4001}, {{1}, {}, {4001}}},
      {{3, 1, 5, 1, 2, 9}, {{5, 1, 1, 9}, {3, 1, 1, 1, 2, 1}, {2, 1}}},
      {{}, {{}}},
      {{5}, {{}, {1}}}};
  for_each_target([&](const char*) {
    Random random(17);
    for (int round = 0; round < 160; ++round) {
      const auto& [full, small] = shapes[random.below(uint32_t(shapes.size()))];
      std::vector<Dense> in;
      for (const DType d : {DType::f32, DType::f32, DType::boolean, DType::i64})
        in.push_back(random_dense({d, full}, random.next()));
      for (int k = 0; k < 2; ++k)
        in.push_back(
            random_dense({DType::f32, small[random.below(uint32_t(small.size()))]}, random.next()));
      const std::string program = random_program(random, types_of(in), 1 + int(random.below(12)));
      SCOPED_TRACE(program + " over " + to_string(full));
      const auto want = run_unfused(program, in);
      for (const bool blocked : {false, true}) {
        if (blocked && (full.rank() != 4 || full[1] % 8)) continue;
        How how{.threads = 1 + int(random.below(2)), .in_place = random.below(2) == 0};
        if (blocked)
          for (const Dense& d : in)
            how.layouts.push_back(d.type.shape != full ? std::optional(Layout())
                                  : random.below(3)    ? std::optional(Layout::parse(
                                                             full[1] % 16 ? "aBcd8b" : "aBcd16b"))
                                                       : std::nullopt);
        const Ran ran = run_fused(program, in, how);
        ASSERT_EQ(ran.refusal, "");
        if (!same_bits(ran.out, want)) {
          for (size_t r = 0; r < want.size(); ++r)
            for (int64_t k = 0; k < want[r].type.numel(); ++k)
              if (std::bit_cast<uint64_t>(want[r].at(k)) !=
                      std::bit_cast<uint64_t>(ran.out[r].at(k)) &&
                  !(std::isnan(want[r].at(k)) && std::isnan(ran.out[r].at(k)))) {
                FAIL() << "result " << r << " element " << k << ": got " << ran.out[r].at(k)
                       << ", expected " << want[r].at(k) << (blocked ? " blocked" : " dense")
                       << " threads " << how.threads << " in place " << how.in_place;
              }
        }
      }
    }
  });
}

TEST(FusedElementwise, SampleProgramsAgreeWithTheReference) {
  for_each_target([&](const char*) {
    for (const auto& sample : ops::fused_elementwise_op.samples) {
      const auto in = random_inputs(sample.inputs, 11);
      const Ran ran = run(ops::fused_elementwise_op, sample.params, in);
      ASSERT_EQ(ran.refusal, "");
      expect_close(ran.out, run_reference_on(ops::fused_elementwise_op, sample.params, in),
                   2 * kUlp, 1e-37);
    }
  });
}

TEST(FusedElementwise, WritesOverInputsOnlyWhereNothingReadsThemLater) {
  const TensorType t{DType::f32, {3000}};
  const std::vector<Dense> in{random_dense(t, 1), random_dense(t, 2), random_dense(t, 3),
                              random_dense({DType::f32, {}}, 4)};
  // Momentum: v' = m v + g, w' = w − lr v'. Weight and velocity are updated in place.
  const std::string momentum =
      "t0 = mul(i1, i3); t1 = add(t0, i2); t2 = mul(t1, i3); t3 = sub(i0, t2) -> t3, t1";
  const Ran ran = run_fused(momentum, in, {.in_place = true});
  const auto has = [&](const Ran& r, std::pair<int, int> p) {
    return std::ranges::find(r.offer.in_place, p) != r.offer.in_place.end();
  };
  EXPECT_TRUE(has(ran, {0, 0}));
  EXPECT_TRUE(has(ran, {1, 1}));
  EXPECT_TRUE(same_bits(ran.out, run_unfused(momentum, in)));
  // The first result is written while the second still needs input 0.
  const std::string late = "t0 = add(i0, i1); t1 = mul(t0, i0) -> t0, t1";
  const Ran second = run_fused(late, in, {.in_place = true});
  EXPECT_FALSE(has(second, {0, 0}));
  EXPECT_TRUE(has(second, {1, 0}));
  EXPECT_TRUE(has(second, {0, 1}));
  EXPECT_TRUE(same_bits(second.out, run_unfused(late, in)));
  const std::string swap = "t0 = add(i0, i1) -> i1, i0, t0, t0";
  EXPECT_TRUE(same_bits(run_fused(swap, in, {.in_place = true}).out, run_unfused(swap, in)));
}

TEST(FusedElementwise, SkipsAnUpdateWhoseConditionIsFalse) {
  const TensorType t{DType::f32, {3001}}, one{DType::f32, {}};
  const std::string update =
      "t0 = mul(i0, i1); t1 = add(i2, t0); t2 = mul(i3, i1); t3 = add(t2, t1); t4 = select(i4, t3, "
      "i3); t5 = mul(i1, t3); "
      "t6 = sub(i0, t5); t7 = select(i4, t6, i0); t8 = select(i4, i1, i0) -> t4, t7, t8";
  for (const double condition : {0.0, 1.0})
    for (const bool in_place : {false, true}) {
      std::vector<Dense> in{random_dense(t, 1), random_dense(one, 2), random_dense(t, 3),
                            random_dense(t, 4), dense_of({DType::boolean, {}})};
      in[4].set(0, condition);
      const Ran ran = run_fused(update, in, {.in_place = in_place});
      EXPECT_TRUE(same_bits(ran.out, run_unfused(update, in))) << condition;
      EXPECT_EQ(same_bits(ran.out, {in[3], in[0], run_unfused(update, in)[2]}), condition == 0);
    }
}

TEST(FusedElementwise, TakesTheLayoutThatItsOperandsHave) {
  const TensorType t{DType::f32, {2, 16, 3, 3}};
  const std::vector<Dense> in{random_dense(t, 1), random_dense(t, 2),
                              random_dense({DType::f32, {16, 1, 1}}, 3)};
  const Layout blocked = Layout::parse("aBcd8b");
  const std::string program = "t0 = mul(i0, i2); t1 = add(t0, i1) -> t1";
  const Ran ran = run_fused(program, in, {.layouts = {blocked, std::nullopt, Layout()}});
  EXPECT_EQ(ran.offer.in, (std::vector{blocked, blocked, Layout()}));
  EXPECT_EQ(ran.offer.out, std::vector{blocked});
  // Channels that do not fill their blocks have padding, which must stay zero: dense it is.
  const TensorType odd{DType::f32, {2, 12, 3, 3}};
  const Ran other = run_fused("t0 = exp(i0) -> t0", {random_dense(odd, 1)}, {.layouts = {blocked}});
  EXPECT_TRUE(other.offer.out[0].is_dense());
}

TEST(FusedElementwise, RefusesWithTheReason) {
  const TensorType t{DType::f16, {4}};
  const Ran ran = run_fused("t0 = add(i0, i1) -> t0", {random_dense(t, 1), random_dense(t, 2)});
  EXPECT_EQ(ran.refusal, "no vector form of add from f16 to f16");
}

TEST(FusedProgram, PrintsWhatItParses) {
  for (const char* text :
       {"t0 = mul(i0, i1); t1 = clamp{low=0.0, high=6.0}(t0) -> t1, t0", "-> i0",
        "t0 = cast{dtype=f32}(i2) -> t0", "t0 = clamp{low=-inf, high=0.5}(i0) -> t0"})
    EXPECT_EQ(ops::parse_program(text).to_string(), text);
  EXPECT_EQ(ops::parse_program(" t0=add{}(i0,i1)->t0 ").to_string(), "t0 = add(i0, i1) -> t0");
}

TEST(FusedProgram, RefusesTextThatIsNoProgram) {
  for (const char* text :
       {"", "t0", "t0 = add(i0, i1)", "t1 = add(i0, i1) -> t1", "t0 = add(t0, i1) -> t0",
        "t0 = add(i0, i1) -> t1", "t0 = softmax{axis=1}(i0) -> t0", "t0 = nothing(i0) -> t0",
        "t0 = add(i0, i1 -> t0", "t0 = add(i0, i1) -> t0 more", "t0 = clamp{low=x}(i0) -> t0",
        "t0 = clamp{low=\"}(i0) -> t0", "t0 = add(i0, i99999999999) -> t0",
        "t0 = add(i-1, i0) -> t0", "t0 = fused_elementwise{program=\"-> i0\"}(i0) -> t0"}) {
    try {
      ops::parse_program(text);
      ADD_FAILURE() << "accepted " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::parse) << text;
    }
  }
  auto program = ops::parse_program("t0 = add(i0, i1) -> t0");
  const TypeList one{{DType::f32, {2}}}, mixed{{DType::f32, {2}}, {DType::f64, {2}}},
      logic{{DType::boolean, {}}, {DType::boolean, {}}};
  EXPECT_THROW(ops::infer_program(program, one), Error);
  EXPECT_THROW(ops::infer_program(program, mixed), Error);
  EXPECT_THROW(ops::infer_program(program, logic), Error);
}

}  // namespace
}  // namespace cairn::cpu
