// SPDX-License-Identifier: Apache-2.0
// Modules: parts of a model that own Variables and have a name, so that weights, errors and random
// numbers are known by their place: "layer1.0.conv1". Names, first values and meaning are
// PyTorch's.
//
//   struct Net : nn::Module {
//     nn::Conv2d conv{this, "conv", 3, 32, {.kernel = 3, .padding = 1}};
//     nn::BatchNorm2d norm{this, "norm", 32};
//     nn::Linear head{this, "head", 32, 2};
//     Tensor forward(const Tensor& x) { return head(mean(relu(norm(conv(x))), {2, 3})); }
//   };
#pragma once
#include <cairn/ops.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn::nn {

// --- first values ---

// What a parameter's elements are drawn from.
struct Distribution {
  enum class Kind { constant, uniform, normal } kind = Kind::constant;
  double a = 0, b = 0;  // the value; low and high; mean and deviation
};
// From a parameter's shape ([out, in, ...] for weights) to its distribution.
using Init = std::function<Distribution(const Shape&)>;

namespace init {
enum class Fan { in, out };
CAIRN_API Init constant(double value);
CAIRN_API Init uniform(double low, double high);
CAIRN_API Init normal(double mean, double deviation);
// He et al. 2015: deviation sqrt(2 / (1 + slope²) / fan); the uniform one has the same deviation.
CAIRN_API Init kaiming_normal(Fan fan = Fan::in, double slope = 0);
CAIRN_API Init kaiming_uniform(Fan fan = Fan::in, double slope = 0);
CAIRN_API Init xavier_uniform(double gain = 1);
}  // namespace init

// Draws a tensor. Depends on distribution, shape, seed and name alone; an f32 tensor is the f64 one
// rounded.
CAIRN_API Tensor draw(const Distribution& from, const TensorType& type, uint64_t seed,
                      std::string_view name);

// Modules made on this thread in this scope draw first values from `seed` and hold floats of
// `dtype`.
struct InitOptions {
  uint64_t seed = 0;
  DType dtype = DType::f32;
  bool draw =
      true;  // false: zeros where numbers would be drawn, to save the time when a file is loaded
};
class CAIRN_API InitScope {
 public:
  explicit InitScope(InitOptions options);
  ~InitScope();
  InitScope(const InitScope&) = delete;
  static const InitOptions& current();

 private:
  InitOptions previous_;
};

// --- the tree of modules ---

// A named place in the tree: holds Variables and children. Pinned: children point at their parent.
// Derive from it for a part whose call has a form of its own; others derive from Module.
class CAIRN_API Group {
 public:
  Group() = default;                       // a root: has no name
  Group(Group* parent, std::string name);  // throws when the name is taken or has a dot
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  virtual ~Group();

  const std::string& name() const { return name_; }
  std::string path() const;  // "layer1.0.conv1"; "" for a root
  const std::vector<Group*>& children() const { return children_; }
  Group& child(std::string_view path);  // throws not_found, with close names

  // What this and all below hold, own first, then by child in order: PyTorch's state_dict order.
  std::vector<Variable> variables() const;   // parameters and state
  std::vector<Variable> parameters() const;  // without state, with those that are frozen
  int64_t parameter_count() const;           // elements of all parameters

  // First values again, from a seed.
  void initialize(uint64_t seed);

  // Excludes from training a module ("layer1", "layer1.0") with all below it, or a parameter
  // ("fc.bias"); with "", all of this: parameters get no gradient, and norm statistics do not move.
  // throws not_found.
  void freeze(std::string_view place = {}) { set_frozen(place, true); }
  void unfreeze(std::string_view place = {}) { set_frozen(place, false); }
  bool frozen() const { return frozen_; }

 protected:
  // Makes a Variable of this module and its first value. State is never trained.
  Variable parameter(const std::string& name, const Shape& shape, const Init& init);
  Variable state(const std::string& name, const TensorType& type, double value);
  // Runs `body` as a call of this module: errors and random numbers inside know the place.
  template <class F>
  auto call(F&& body, CallSite site = {}) {
    std::optional<decltype(body())> result;
    scoped([&] { result.emplace(body()); }, site);
    return std::move(*result);
  }

 private:
  struct Held {
    Variable variable;
    Init init;
    bool is_state;
  };
  void set_frozen(std::string_view place, bool on);
  void scoped(const std::function<void()>& body, CallSite site);
  void visit(const std::function<void(Group&)>& f);
  void visit(const std::function<void(const Group&)>& f) const;
  Variable hold(const std::string& name, const TensorType& type, Init init, bool is_state);

  std::string name_;
  Group* parent_ = nullptr;
  std::vector<Group*> children_;
  std::vector<Held> held_;
  bool frozen_ = false;
};

// A part that maps one tensor to one tensor. Training or evaluation is a scope around the call.
class CAIRN_API Module : public Group {
 public:
  using Group::Group;
  Tensor operator()(const Tensor& x, CallSite site = {__builtin_FILE(), __builtin_LINE()});

 protected:
  virtual Tensor forward(const Tensor& x) = 0;
};

// Modules and functions one after another, named "0", "1", ...
class CAIRN_API Sequential : public Module {
 public:
  using Module::Module;
  template <class M, class... A>
  M& add(A&&... arguments) {
    auto module =
        std::make_unique<M>(this, std::to_string(steps_.size()), std::forward<A>(arguments)...);
    M& added = *module;
    steps_.push_back({std::move(module), {}});
    return added;
  }
  void add(std::function<Tensor(const Tensor&)> function) {
    steps_.push_back({nullptr, std::move(function)});
  }
  size_t size() const { return steps_.size(); }
  Tensor forward(const Tensor& x) override;

 private:
  struct Step {
    std::unique_ptr<Module> module;
    std::function<Tensor(const Tensor&)> function;
  };
  std::vector<Step> steps_;
};

// Repeated blocks, named "0", "1", ...; the owner calls them.
template <class M>
class List : public Group {
 public:
  using Group::Group;
  template <class... A>
  M& add(A&&... arguments) {
    items_.push_back(
        std::make_unique<M>(this, std::to_string(items_.size()), std::forward<A>(arguments)...));
    return *items_.back();
  }
  size_t size() const { return items_.size(); }
  M& operator[](size_t i) { return *items_.at(i); }

  class Iterator {
   public:
    explicit Iterator(const std::unique_ptr<M>* at) : at_(at) {}
    M& operator*() const { return **at_; }
    Iterator& operator++() { return ++at_, *this; }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const std::unique_ptr<M>* at_;
  };
  Iterator begin() const { return Iterator(items_.data()); }
  Iterator end() const { return Iterator(items_.data() + items_.size()); }

 private:
  std::vector<std::unique_ptr<M>> items_;
};

// --- layers ---

// A height and a width; one number stands for both.
struct Pair {
  int64_t h, w;
  Pair(int64_t both) : h(both), w(both) {}
  Pair(int64_t height, int64_t width) : h(height), w(width) {}
};

struct Conv2dOptions {
  Pair kernel = 1, stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  Init init = {};  // of the weight; default: uniform within ±1/sqrt(fan in), as the bias
};
// [n, in, h, w] → [n, out, y, x]; weight [out, in / groups, kernel].
class CAIRN_API Conv2d : public Module {
 public:
  Conv2d(Group* parent, std::string name, int64_t in, int64_t out, const Conv2dOptions& options);
  Tensor forward(const Tensor& x) override;
  Variable weight, bias;  // bias undefined when there is none

 private:
  ConvOptions options_;
};

struct LinearOptions {
  bool bias = true;
  Init init = {};  // default: uniform within ±1/sqrt(in), as the bias
  Init bias_init = {};
};
// [..., in] → [..., out]; weight [out, in].
class CAIRN_API Linear : public Module {
 public:
  Linear(Group* parent, std::string name, int64_t in, int64_t out,
         const LinearOptions& options = {});
  Tensor forward(const Tensor& x) override;
  Variable weight, bias;
};

struct BatchNormOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;  // the share of the new batch in the running statistics
};
// Normalises each channel. In training by the batch's own statistics, which also move the running
// ones (with the unbiased variance); in evaluation, and when frozen, by the running ones.
class CAIRN_API BatchNorm2d : public Module {
 public:
  BatchNorm2d(Group* parent, std::string name, int64_t channels,
              const BatchNormOptions& options = {});
  Tensor forward(const Tensor& x) override;
  Variable weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  BatchNormOptions options_;
};

// Over the last axes, those of `shape`.
class CAIRN_API LayerNorm : public Module {
 public:
  LayerNorm(Group* parent, std::string name, const Shape& shape, double epsilon = 1e-5);
  Tensor forward(const Tensor& x) override;
  Variable weight, bias;

 private:
  double epsilon_;
};

// In training, zeroes elements with probability p and scales the rest by 1/(1 − p).
class CAIRN_API Dropout : public Module {
 public:
  Dropout(Group* parent, std::string name, double p = 0.5);
  Tensor forward(const Tensor& x) override;

 private:
  double p_;
};

// --- weights in files ---

struct LoadOptions {
  bool strict = true;  // anything that does not fit is an error that lists all of it
  // Names or prefixes ("fc") that keep their first values where the file's shapes differ, as for a
  // head of other classes.
  std::vector<std::string> reset = {};
};
struct LoadReport {
  std::vector<std::string> loaded, missing, unexpected, mismatched, reset;
  std::string summary() const;
};
// Fills a module from a safetensors file of these names (torchvision's); floats of another width
// are converted. Files without num_batches_tracked are taken. Changes nothing when it throws.
CAIRN_API LoadReport load_weights(Group& module, const std::filesystem::path& path,
                                  const LoadOptions& options = {});
CAIRN_API void save_weights(const Group& module, const std::filesystem::path& path);

}  // namespace cairn::nn
