// SPDX-License-Identifier: Apache-2.0
// batch → calls on tensors: the tree of modules, and what a call of one adds to the context.
// (trail: batch → calls on tensors)
#include <cairn/nn.h>
#include <fmt/format.h>

#include <algorithm>

#include "ops/context.h"

namespace cairn::nn {
namespace {

thread_local const Group* calling = nullptr;  // the module whose call is running

std::string joined(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}

}  // namespace

Group::Group(Group* parent, std::string name) : name_(std::move(name)), parent_(parent) {
  if (name_.empty() || name_.find('.') != std::string::npos)
    fail(ErrorCode::invalid_argument,
         fmt::format("module: the name \"{}\" is empty or has a dot", name_));
  CAIRN_CHECK(parent_, "a module with a name needs a parent");
  for (const Group* sibling : parent_->children_)
    if (sibling->name_ == name_)
      fail(ErrorCode::invalid_argument,
           fmt::format("module: {} has two children named \"{}\"",
                       parent_->path().empty() ? "the root" : parent_->path(), name_));
  parent_->children_.push_back(this);
}

Group::~Group() {
  if (parent_) std::erase(parent_->children_, this);
  for (Group* child : children_) child->parent_ = nullptr;
}

std::string Group::path() const { return parent_ ? joined(parent_->path(), name_) : name_; }

void Group::visit(const std::function<void(Group&)>& f) {
  f(*this);
  for (Group* child : children_) child->visit(f);
}
void Group::visit(const std::function<void(const Group&)>& f) const {
  f(*this);
  for (const Group* child : children_) child->visit(f);
}

Group& Group::child(std::string_view path) {
  const auto dot = path.find('.');
  for (Group* c : children_)
    if (c->name_ == path.substr(0, dot))
      return dot == std::string_view::npos ? *c : c->child(path.substr(dot + 1));
  std::vector<std::string> names;
  for (const Group* c : children_) names.push_back(c->name_);
  fail(ErrorCode::not_found, fmt::format("module: {} has no child \"{}\"", this->path(), path),
       names.empty() ? "It has none" : fmt::format("It has: {}", fmt::join(names, ", ")));
}

std::vector<Variable> Group::variables() const {
  std::vector<Variable> out;
  visit([&](const Group& g) {
    for (const Held& h : g.held_) out.push_back(h.variable);
  });
  return out;
}

std::vector<Variable> Group::parameters() const {
  std::vector<Variable> out;
  visit([&](const Group& g) {
    for (const Held& h : g.held_)
      if (!h.is_state) out.push_back(h.variable);
  });
  return out;
}

int64_t Group::parameter_count() const {
  int64_t count = 0;
  for (const Variable& v : parameters()) count += v.type().numel();
  return count;
}

void Group::initialize(uint64_t seed) {
  visit([&](Group& g) {
    for (const Held& h : g.held_)
      h.variable.set_value(
          draw(h.init(h.variable.type().shape), h.variable.type(), seed, h.variable.name()));
  });
}

void Group::set_frozen(std::string_view place, bool on) {
  const auto set = [on](Held& h) { h.variable.set_trainable(!on && !h.is_state); };
  const std::string wanted = place.empty() ? path() : joined(path(), place);
  bool found = false;
  visit([&](Group& g) {
    if (g.path() == wanted) {
      found = true;
      g.visit([&](Group& inside) {
        inside.frozen_ = on;
        for (Held& h : inside.held_) set(h);
      });
    }
    for (Held& h : g.held_)
      if (h.variable.name() == wanted) found = true, set(h);
  });
  if (found) return;
  std::vector<std::string> names;
  for (const Group* c : children_) names.push_back(c->name_);
  fail(ErrorCode::not_found, fmt::format("freeze: there is no module or parameter \"{}\"", place),
       fmt::format("At the top there are: {}", fmt::join(names, ", ")));
}

Variable Group::hold(const std::string& name, const TensorType& type, Init init, bool is_state) {
  const std::string full = joined(path(), name);
  Distribution from = init(type.shape);
  if (!InitScope::current().draw && from.kind != Distribution::Kind::constant) from = {};
  Variable v(full, draw(from, type, InitScope::current().seed, full), !is_state);
  held_.push_back({v, std::move(init), is_state});
  return v;
}
Variable Group::parameter(const std::string& name, const Shape& shape, const Init& init) {
  return hold(name, {InitScope::current().dtype, shape}, init, false);
}
Variable Group::state(const std::string& name, const TensorType& type, double value) {
  return hold(name, type, init::constant(value), true);
}

void Group::scoped(const std::function<void()>& body, CallSite site) {
  // The path grows by the names between the module that is being called and this one, so that
  // groups which are not called themselves (lists) are in it too.
  std::string step;
  for (const Group* g = this; g && g != calling; g = g->parent_)
    if (!g->name_.empty()) step = step.empty() ? g->name_ : g->name_ + "." + step;
  struct Restore {
    const Group* previous = calling;
    ~Restore() { calling = previous; }
  } restore;
  calling = this;
  std::optional<PathScope> scope;
  if (!step.empty()) scope.emplace(step);
  try {
    body();
  } catch (Error& e) {
    if (site.file && !step.empty())
      e.add_frame(fmt::format("{} (module {})", to_string(site), module_path()));
    else if (site.file)
      e.add_frame(to_string(site));
    throw;
  }
}

Tensor Module::operator()(const Tensor& x, CallSite site) {
  return call([&] { return forward(x); }, site);
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const Step& step : steps_) y = step.module ? (*step.module)(y, {}) : step.function(y);
  return y;
}

}  // namespace cairn::nn
