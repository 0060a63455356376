// SPDX-License-Identifier: Apache-2.0
#include <cairn/autodiff.h>
#include <cairn/graph.h>
#include <gtest/gtest.h>

#include "ir/graph.h"

namespace cairn {
namespace {

Tensor f64(std::initializer_list<double> v) { return Tensor::from<double>(v, {int64_t(v.size())}); }

TEST(Tape, DifferentiatesAProduct) {
  const Tensor x = f64({1, 2, 3});
  Tape tape;
  tape.watch(x);
  const Tensor g = tape.gradient(sum(x * x * 2.0), std::vector{x})[0];
  EXPECT_EQ(g.values<double>(), (std::vector<double>{4, 8, 12}));
}

TEST(Tape, GivesSecondOrderThroughAnOuterTape) {
  const Tensor x = f64({0.5, -1});
  Tape outer;
  outer.watch(x);
  Tensor first;
  {
    Tape inner;
    inner.watch(x);
    first = inner.gradient(sum(x * x * x), std::vector{x})[0];
  }
  const Tensor second = outer.gradient(sum(first), std::vector{x})[0];
  EXPECT_NEAR(second.values<double>()[0], 3, 1e-12);   // 6x
  EXPECT_NEAR(second.values<double>()[1], -6, 1e-12);
}

TEST(Tape, GivesZerosWhereNothingFlows) {
  const Tensor x = f64({1, 2}), y = f64({3, 4});
  Tape tape;
  tape.watch(x);
  tape.watch(y);
  const auto g = tape.gradient(sum(x), std::vector{x, y});
  EXPECT_EQ(g[1].values<double>(), (std::vector<double>{0, 0}));
}

TEST(Tape, NamesTheOperatorWithoutAGradient) {
  const Tensor x = f64({1, 2});
  Tape tape;
  tape.watch(x);
  EXPECT_EQ(argmax(x).item(), 1);  // integers: nothing flows through, no error
  EXPECT_THROW(tape.gradient(x, std::vector{x}), Error);  // two elements, no seed
  const OpDef& fused = *find_op("fused_elementwise");
  const Params program = fused.make_params({{"program", std::string("t0 = exp(i0) -> t0")}});
  const Tensor y = sum(apply1(fused, {x}, program));
  try {
    tape.gradient(y, std::vector{x});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("fused_elementwise has none: " + fused.no_gradient_reason), std::string::npos) << e.what();
  }
}

TEST(Trace, ReadingATracedValueNamesTheLine) {
  try {
    trace([](const std::vector<Tensor>& in) { return std::vector{in[0] * Tensor::scalar((in[0] + 1.0).item())}; }, {{DType::f32, {}}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("autodiff_test.cpp:"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("select, cond"), std::string::npos) << e.what();
  }
}

TEST(Trace, PrintsAndParsesBack) {
  Variable w("layer.weight", Tensor::ones({3, 2}));
  const auto g = trace(
      [&](const std::vector<Tensor>& in) {
        const Tensor y = softmax(linear(in[0], w) * 0.1, 1);
        w.assign(w.read() * 0.5);
        return std::vector{y, sum(y, {0}, Keep::yes)};
      },
      {{DType::f32, {4, 2}}}, {"x"});
  const std::string text = print(*g, true);
  const auto back = parse_graph(text);
  EXPECT_EQ(print(*back, true), [&] {
    std::string plain;  // call sites do not come back
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) plain += line.substr(0, line.find("  # ")) + "\n";
    return plain;
  }());
}

TEST(Parse, SaysWhatIsWrongAndWhere) {
  const auto message = [](std::string_view text) {
    try {
      parse_graph(text);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  EXPECT_NE(message("graph g {\n input %x: f32[2]\n %1: f32[2] = nope(%x)\n}").find("line 3: no operator is called 'nope'"),
            std::string::npos);
  EXPECT_NE(message("graph g {\n %1: f32[2] = relu(%x)\n}").find("read before it is made"), std::string::npos);
  EXPECT_NE(message("graph g {\n input %x: f32[2]\n %1: f32[3] = relu(%x)\n}").find("gives f32[2], not f32[3]"),
            std::string::npos);
  for (std::string_view bad : {"", "graph", "graph g {", "graph g { output %", "graph g { constant %1: f32[2] = {1} }",
                               "graph g { assign %x = %y }", "graph g { input %x: f32[99999999999999999999] }"})
    EXPECT_THROW(parse_graph(bad), Error) << bad;
}

// y = x² where x > limit, else 3x, by cond.
std::vector<Tensor> branchy(const Tensor& x, const Tensor& go) {
  return cond(go, [&] { return std::vector{x * x}; }, [&] { return std::vector{x * 3.0}; });
}

TEST(Cond, RunsOneBranchInEagerModeAndEitherInAGraph) {
  const Function f = [](const std::vector<Tensor>& in) { return branchy(in[0], in[1]); };
  const Tensor x = f64({2, 5});
  Plan plan(trace(f, {x.type(), {DType::boolean, {}}}));
  for (bool go : {true, false}) {
    const Tensor flag = Tensor::scalar(go, DType::boolean);
    EXPECT_EQ(f({x, flag})[0].values<double>(), plan.run({x, flag})[0].values<double>());
    EXPECT_EQ(plan.run({x, flag})[0].values<double>()[1], go ? 25 : 15);
  }
}

TEST(Cond, IsDifferentiatedInBothModes) {
  const Function f = [](const std::vector<Tensor>& in) {
    Tape tape;
    tape.watch(in[0]);
    return tape.gradient(sum(branchy(in[0], in[1])[0]), std::vector{in[0]});
  };
  const Tensor x = f64({2, 5});
  Plan plan(trace(f, {x.type(), {DType::boolean, {}}}));
  for (bool go : {true, false}) {
    const Tensor flag = Tensor::scalar(go, DType::boolean);
    const std::vector<double> expected = go ? std::vector<double>{4, 10} : std::vector<double>{3, 3};
    EXPECT_EQ(f({x, flag})[0].values<double>(), expected);
    EXPECT_EQ(plan.run({x, flag})[0].values<double>(), expected);
  }
}

TEST(Cond, RefusesBranchesOfDifferentTypes) {
  try {
    trace(
        [](const std::vector<Tensor>& in) {
          return cond(in[1], [&] { return std::vector{in[0]}; }, [&] { return std::vector{sum(in[0])}; });
        },
        {{DType::f64, {2}}, {DType::boolean, {}}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("then (f64[2]), else (f64[])"), std::string::npos) << e.what();
  }
}

TEST(WhileLoop, CountsInBothModes) {
  const Function f = [](const std::vector<Tensor>& in) {
    return while_loop([&](auto& s) { return s[0] < in[1]; },
                      [](auto& s) { return std::vector{s[0] + 1.0, s[1] * 2.0}; }, {in[0], Tensor::scalar(1, DType::f64)});
  };
  const Tensor zero = Tensor::scalar(0, DType::f64), ten = Tensor::scalar(10, DType::f64);
  Plan plan(trace(f, {zero.type(), ten.type()}));
  EXPECT_EQ(f({zero, ten})[1].item(), 1024);
  EXPECT_EQ(plan.run({zero, ten})[1].item(), 1024);
  EXPECT_EQ(plan.run({zero, zero})[1].item(), 1);
}

TEST(Cond, PrintsAndParsesWithItsBranches) {
  const auto g = trace([](const std::vector<Tensor>& in) { return branchy(in[0], in[1]); }, {{DType::f64, {2}}, {DType::boolean, {}}});
  const auto back = parse_graph(print(*g, true));
  EXPECT_EQ(interpret(*back, {f64({2, 5}), Tensor::scalar(0, DType::boolean)})[0].values<double>(),
            (std::vector<double>{6, 15}));
}

}  // namespace
}  // namespace cairn
