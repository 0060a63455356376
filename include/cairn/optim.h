// SPDX-License-Identifier: Apache-2.0
// Optimisers, as PyTorch defines them, and learning-rate schedules.
//
// All have a text form "name:key=value,key=value", which recipes and the command line use:
//   sgd:lr=0.01,momentum=0.9,weight_decay=1e-4,nesterov=true      cosine:warmup=5,final=0.01
#pragma once
#include <cairn/ops.h>

namespace cairn::optim {

// Parameters whose names are `prefix` or begin with it and a dot; the first group that fits counts.
struct Group {
  std::string prefix;
  double lr_scale = 1;
  std::optional<double> weight_decay = {};  // instead of the optimiser's
};

// What is not given takes the method's default; what a method does not have is refused.
struct Options {
  std::optional<double> lr = {};                 // sgd, rmsprop 0.01; adam, adamw 0.001
  std::optional<double> momentum = {};           // sgd, rmsprop: 0
  std::optional<double> dampening = {};          // sgd: 0
  std::optional<bool> nesterov = {};             // sgd
  std::optional<double> beta1 = {}, beta2 = {};  // adam, adamw: 0.9, 0.999
  std::optional<double> alpha = {};              // rmsprop: 0.99
  std::optional<bool> centered = {};             // rmsprop
  std::optional<double> epsilon = {};            // all but sgd: 1e-8
  std::optional<double> weight_decay =
      {};                 // 0; adamw 0.01, which it takes off the weights directly
  bool decay_all = true;  // false: no decay on biases and norms (parameters of one axis)
  double clip_value = 0;  // > 0: each gradient element within ±this
  double clip_norm = 0;   // > 0: the norm of all gradients together at most this
  std::vector<Group> groups = {};
};

// A method and its options, all filled in.
struct Config {
  std::string method = "sgd";
  Options options;
};
CAIRN_API Config sgd(const Options& options = {});
CAIRN_API Config momentum(Options options = {});  // sgd with momentum 0.9 unless given
CAIRN_API Config nesterov(Options options = {});
CAIRN_API Config adam(const Options& options = {});
CAIRN_API Config adamw(const Options& options = {});
CAIRN_API Config rmsprop(const Options& options = {});
// The text form (without groups). parse throws parse or invalid_argument, naming what it does not
// know.
CAIRN_API Config parse(std::string_view text);
CAIRN_API std::string to_string(const Config& config);

// The norm over all tensors together, a scalar.
CAIRN_API Tensor global_norm(const std::vector<Tensor>& tensors);

// Updates parameters from gradients, with tensor operators on Variables: run now, or recorded into
// the graph of a step.
class CAIRN_API Optimizer {
 public:
  // Trains those of `parameters` that are trainable now.
  Optimizer(const Config& config, const std::vector<Variable>& parameters);

  const Config& config() const { return config_; }
  const std::vector<Variable>& parameters() const { return parameters_; }
  const std::vector<Variable>& state() const {
    return state_;
  }  // "optimizer/momentum/<parameter>", …

  // One update. `gradients` go with parameters(); `lr` is an f64 and `step` an i64 scalar, the
  // first step being 1: run-time values. With `apply` (a bool scalar), nothing changes when it is
  // false. Clipping comes first, by value, then by norm. Gives the norm before clipping by norm,
  // undefined when that is off.
  Tensor update(std::vector<Tensor> gradients, const Tensor& lr, const Tensor& step,
                const Tensor& apply = {});

 private:
  struct Slot {
    Variable parameter;
    double lr_scale, weight_decay;
    Variable first, second, third;  // the method's state
  };
  Config config_;
  std::vector<Variable> parameters_, state_;
  std::vector<Slot> slots_;
};

// A schedule of the learning rate: a pure function of the step. Times are in epochs, fractions
// allowed.
struct CAIRN_API Schedule {
  enum class Kind { constant, step, cosine, one_cycle, polynomial } kind = Kind::constant;
  double warmup = 0;   // epochs during which the rate rises in a line, from its first step on
  double final = 0;    // cosine, polynomial: the last factor
  double gamma = 0.1;  // step: multiplies the rate …
  double every = 30;   //   … each time so many epochs have gone by (since the start of training)
  double power = 1;    // polynomial
  double rise = 0.3;  // one_cycle: the share of all steps in which the rate rises, from 1/start, …
  double start =
      25;  //   … and then falls to 1/(start · end); as PyTorch's OneCycleLR (momentum stays)
  double end = 1e4;

  // The factor on the base rate for the update `step` (the first is 0) of `steps_per_epoch` ·
  // `epochs`.
  double factor(int64_t step, int64_t steps_per_epoch, double epochs) const;
  bool operator==(const Schedule&) const = default;
};
CAIRN_API Schedule parse_schedule(std::string_view text);
CAIRN_API std::string to_string(const Schedule& schedule);

}  // namespace cairn::optim
