// SPDX-License-Identifier: Apache-2.0
// One training step as a function on tensors and variables: run now, or compiled into one graph.
#include <cairn/autodiff.h>
#include <cairn/train.h>
#include <fmt/format.h>

#include <cmath>

#include "ops/context.h"
#include "ops/interpreter.h"
#include "train/deferred.h"
#include "train/eager_scope.h"
#include "train/loss_scale.h"
#include "train/nonfinite.h"

namespace cairn::train {
namespace {

Tensor as(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

}  // namespace

struct Step::Impl {
  nn::Module& net;
  loss::Loss loss;
  StepOptions options;
  optim::Optimizer optimizer;
  LossScaler scaler;
  std::vector<Variable> averaged, averages, accumulated;
  DType dtype = DType::f32;  // of the parameters
  StepCounters counters;
  std::unique_ptr<Compiled> update, accumulate;
  Compiled* last = nullptr;

  Impl(nn::Module& n, loss::Loss l, const optim::Config& config, const StepOptions& o)
      : net(n),
        loss(std::move(l)),
        options(o),
        optimizer(config, n.parameters()),
        scaler(o.loss_scale) {
    if (optimizer.parameters().empty())
      fail(ErrorCode::invalid_argument, "train: the model has no parameter to train",
           "All of them are frozen");
    if (!(o.ema >= 0 && o.ema < 1))
      fail(ErrorCode::invalid_argument,
           fmt::format("train: got ema = {}, expected 0 ≤ ema < 1", o.ema));
    dtype = optimizer.parameters()[0].type().dtype;
    if (o.ema > 0)
      for (const Variable& v : net.variables())
        if (is_float(v.type().dtype)) {
          averaged.push_back(v);
          averages.emplace_back("ema/" + v.name(), v.value(), false);
        }
    if (o.accumulates)
      for (const Variable& p : optimizer.parameters())
        accumulated.emplace_back("accumulated/" + p.name(), Tensor::full(p.type(), 0), false);
    update =
        std::make_unique<Compiled>([this](const auto& in) { return body(in, true); }, o.compile);
    accumulate =
        std::make_unique<Compiled>([this](const auto& in) { return body(in, false); }, o.compile);
  }

  struct Backward {
    Tensor loss, output;            // the loss as f64
    Tensor applied;                 // whether the step counts
    std::vector<Tensor> gradients;  // of the loss itself
  };

  // `between` runs when the loss is known, before the backward pass.
  Backward forward_backward(const Tensor& x, const Tensor& y,
                            const std::function<void(const Backward&)>& between) {
    Backward out;
    Tape tape;
    out.output = net(is_float(x.dtype()) ? as(x, dtype) : x);
    const Tensor value =
        loss(out.output, !loss.classifies && is_float(y.dtype()) ? as(y, dtype) : y);
    if (value.numel() != 1)
      fail(ErrorCode::shape_mismatch,
           "train: the loss is " + to_string(value.type()) + ", expected one element");
    out.loss = as(reshape(value, {}), DType::f64);
    out.applied = all_finite(value);
    between(out);
    out.gradients = tape.gradient(scaler.scale(value), optimizer.parameters());
    if (scaler.on()) out.applied = logical_and(out.applied, scaler.unscale(out.gradients));
    return out;
  }

  // The inputs, in order: x, y, then 0-d run-time values. Outputs: loss, applied, output, norm or
  // nothing, gradients or nothing.
  enum In { kX, kY, kSeed, kIteration, kRate, kUpdate, kWeight, kTotal };
  std::vector<Tensor> body(const std::vector<Tensor>& in, bool updates) {
    const TrainingScope training(true);
    const RandomScope random(in[kSeed], in[kIteration]);
    DeferredAssigns deferred;
    Backward b;
    {
      InterpreterScope scope(deferred);
      // What depends on the loss alone is settled at once: a compiled step can then update each
      // weight as soon as its gradient is there, and reuse the gradient's memory.
      b = forward_backward(in[kX], in[kY], [&](const Backward& b) {
        if (!scaler.on()) deferred.commit(b.applied);
      });
    }
    const Tensor& applied = b.applied;
    if (scaler.on()) deferred.commit(applied);

    std::vector<Tensor> out{b.loss, applied, b.output};
    if (options.accumulates)
      for (size_t i = 0; i < accumulated.size(); ++i) {
        const Tensor before = accumulated[i].read();
        Tensor& g = b.gradients[i];
        const Tensor sum = before + g * as(in[kWeight], g.dtype());
        if (updates) g = sum / as(in[kTotal], g.dtype());
        accumulated[i].assign(select(applied, updates ? zeros_like(before) : sum, before));
      }
    if (updates) {
      const Tensor norm = optimizer.update(b.gradients, in[kRate], in[kUpdate], applied);
      if (norm.defined()) out.push_back(as(norm, DType::f64));
      average(in[kUpdate], applied);
    }
    scaler.update(applied);
    if (options.keep_gradients) out.insert(out.end(), b.gradients.begin(), b.gradients.end());
    return out;
  }

  void average(const Tensor& update, const Tensor& applied) {
    if (averages.empty()) return;
    const Tensor t = cast(update, DType::f64);
    const Tensor d = minimum((t + 1) / (t + 10), options.ema);
    for (size_t i = 0; i < averages.size(); ++i) {
      const Tensor a = averages[i].read(), w = averaged[i].read();
      averages[i].assign(select(applied, a + (w - a) * as(1 - d, a.dtype()), a));
    }
  }

  StepResult run(const Tensor& x, const Tensor& y, double lr, bool updates) {
    if (x.rank() == 0 || y.rank() == 0 || x.shape()[0] != y.shape()[0] || x.shape()[0] == 0)
      fail(ErrorCode::shape_mismatch,
           fmt::format("train: got inputs {} and targets {}, expected one target a record",
                       to_string(x.type()), to_string(y.type())));
    const double weight = double(x.shape()[0]);
    const std::vector<Tensor> in{x,
                                 y,
                                 i64(int64_t(options.seed)),
                                 i64(counters.iterations),
                                 Tensor::scalar(lr, DType::f64),
                                 i64(counters.updates + 1),
                                 Tensor::scalar(weight, DType::f64),
                                 Tensor::scalar(counters.weight + weight, DType::f64)};
    StepResult result;
    result.loss_scale = scaler.value();
    std::vector<Tensor> out;
    if (options.mode == Mode::graph) {
      last = updates ? update.get() : accumulate.get();
      out = (*last)(in);
    } else {
      const EagerScope scope(options.compile);
      out = body(in, updates);
    }
    result.loss = out[0].item();
    result.applied = out[1].item() != 0;
    result.output = out[2];
    size_t next = 3;
    if (updates && optimizer.config().options.clip_norm > 0)
      result.gradient_norm = out[next++].item();
    result.gradients.assign(out.begin() + int64_t(next), out.end());

    ++counters.iterations;
    if (result.applied) {
      counters.skipped_in_a_row = 0;
      counters.weight = updates || !options.accumulates ? 0 : counters.weight + weight;
      if (updates) ++counters.updates;
    } else {
      ++counters.skipped, ++counters.skipped_in_a_row;
    }
    return result;
  }

  static Tensor i64(int64_t v) { return Tensor::from<int64_t>({v}, {}); }
};

Step::Step(nn::Module& net, loss::Loss loss, const optim::Config& optimizer,
           const StepOptions& options)
    : impl_(std::make_unique<Impl>(net, std::move(loss), optimizer, options)) {}
Step::~Step() = default;

StepResult Step::update(const Tensor& x, const Tensor& y, double lr) {
  return impl_->run(x, y, lr, true);
}

StepResult Step::accumulate(const Tensor& x, const Tensor& y) {
  CAIRN_CHECK(impl_->options.accumulates, "accumulate() needs StepOptions::accumulates");
  return impl_->run(x, y, 0, false);
}

const StepOptions& Step::options() const { return impl_->options; }
const optim::Optimizer& Step::optimizer() const { return impl_->optimizer; }

std::vector<Variable> Step::state() const {
  std::vector<Variable> out = impl_->optimizer.state();
  for (const auto& more : {impl_->averages, impl_->accumulated, impl_->scaler.state()})
    out.insert(out.end(), more.begin(), more.end());
  return out;
}

std::vector<Variable> Step::averages() const {
  std::vector<Variable> out;
  size_t next = 0;
  for (const Variable& v : impl_->net.variables()) {
    const bool has = next < impl_->averaged.size() && impl_->averaged[next] == v;
    out.push_back(has ? impl_->averages[next++] : Variable());
  }
  return out;
}

const StepCounters& Step::counters() const { return impl_->counters; }
void Step::set_counters(const StepCounters& counters) { impl_->counters = counters; }
PlanStats Step::stats() const { return impl_->last ? impl_->last->stats() : PlanStats{}; }
std::string Step::explain() const { return impl_->last ? impl_->last->explain() : std::string(); }

std::string Step::find_nonfinite(const Tensor& x, const Tensor& y, int64_t iteration) const {
  const EagerScope options(impl_->options.compile);
  const TrainingScope training(true);
  if (iteration < 0) iteration = std::max<int64_t>(impl_->counters.iterations - 1, 0);
  const RandomScope random(Impl::i64(int64_t(impl_->options.seed)), Impl::i64(iteration));
  InterpreterScope eager(eager_interpreter());
  NonfiniteFinder finder;
  InterpreterScope scope(finder);
  finder.look_at_input("x", x);
  finder.look_at_input("y", y);
  impl_->forward_backward(x, y, [&](const auto&) { finder.phase("backward"); });
  return finder.finding();
}

}  // namespace cairn::train
