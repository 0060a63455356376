// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <cairn/safetensors.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"

namespace cairn::train {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kFormat = 1;
constexpr const char* kState = "cairn.state";
constexpr const char* kRecipe = "cairn.recipe";

double number(const Json& j) {
  return j.is_null() ? std::numeric_limits<double>::quiet_NaN() : j.get<double>();
}

Json to_json(const EpochResult& e) {
  return {{"epoch", e.epoch},
          {"step", e.step},
          {"train_loss", e.train_loss},
          {"train_accuracy", e.train_accuracy},
          {"loss", e.loss},
          {"accuracy", e.accuracy},
          {"lr", e.lr},
          {"seconds", e.seconds}};
}

Json to_json(const RunState& s) {
  Json history = Json::array();
  for (const EpochResult& e : s.history) history.push_back(to_json(e));
  return {{"format", kFormat},
          {"epoch", s.position.epoch},
          {"batch", s.position.batch},
          {"step", s.step},
          {"waiting", s.waiting},
          {"iterations", s.counters.iterations},
          {"updates", s.counters.updates},
          {"weight", s.counters.weight},
          {"skipped", s.counters.skipped},
          {"skipped_in_a_row", s.counters.skipped_in_a_row},
          {"loss_sum", s.loss_sum},
          {"records", s.records},
          {"right", s.right},
          {"skipped_batches", s.skipped_batches},
          {"best_epoch", s.best_epoch},
          {"best", s.best},
          {"history", std::move(history)}};
}

RunState state_of(const Json& j) {
  RunState s;
  if (const int format = j.at("format"); format != kFormat)
    fail(ErrorCode::version_mismatch,
         fmt::format("checkpoint: got format {}, expected {}", format, kFormat),
         "It was written by another version of Cairn");
  s.position = {j.at("epoch"), j.at("batch")};
  s.step = j.at("step");
  s.waiting = j.at("waiting");
  s.counters = {j.at("iterations"), j.at("updates"), j.at("weight"), j.at("skipped"),
                j.at("skipped_in_a_row")};
  s.loss_sum = number(j.at("loss_sum"));
  s.records = j.at("records");
  s.right = j.at("right");
  s.skipped_batches = j.at("skipped_batches");
  s.best_epoch = j.at("best_epoch");
  s.best = number(j.at("best"));
  for (const Json& e : j.at("history"))
    s.history.push_back({e.at("epoch"), e.at("step"), number(e.at("train_loss")),
                         number(e.at("train_accuracy")), number(e.at("loss")),
                         number(e.at("accuracy")), number(e.at("lr")), number(e.at("seconds"))});
  if (s.position.epoch < 0 || s.position.batch < 0 || s.step < 0 ||
      s.best_epoch >= int64_t(s.history.size()))
    fail(ErrorCode::parse, "checkpoint: its state is out of range");
  return s;
}

std::vector<Variable> all_variables(const nn::Module& net, const Step& step) {
  std::vector<Variable> out = net.variables();
  for (const Variable& v : step.state()) out.push_back(v);
  return out;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const nn::Module& net, const Step& step,
                     const RunState& state, const Recipe& recipe) {
  NamedTensors tensors;
  for (const Variable& v : all_variables(net, step)) tensors.emplace_back(v.name(), v.value());
  write_safetensors(path, tensors,
                    {{"format", "pt"}, {kState, to_json(state).dump()}, {kRecipe, recipe.yaml()}});
}

void save_best(const std::filesystem::path& path, const nn::Module& net,
               const EpochResult& result) {
  NamedTensors tensors;
  for (const Variable& v : net.variables()) tensors.emplace_back(v.name(), v.value());
  write_safetensors(path, tensors, {{"format", "pt"}, {"cairn.result", to_json(result).dump()}});
}

RunState load_checkpoint(const std::filesystem::path& path, const nn::Module& net, Step& step,
                         const std::function<void(const Recipe&)>& check) {
  const SafetensorsFile file(path);
  const std::string *state = file.metadata(kState), *recipe = file.metadata(kRecipe);
  if (!state || !recipe)
    fail(ErrorCode::parse,
         fmt::format("checkpoint: {} holds weights, but no state of a run", printable(path)),
         "Start from these weights instead of resuming");
  check(Recipe::parse(*recipe));
  RunState out;
  try {
    out = state_of(Json::parse(*state));
  } catch (const Json::exception& e) {
    fail(ErrorCode::parse,
         fmt::format("checkpoint: {}: its state does not parse: {}", printable(path), e.what()));
  }

  std::vector<std::string> differences;
  std::set<std::string, std::less<>> known;
  std::vector<std::pair<Variable, Tensor>> values;
  for (const Variable& v : all_variables(net, step)) {
    known.insert(v.name());
    if (!file.contains(v.name())) {
      differences.push_back(v.name() + " is missing");
    } else if (file.type(v.name()) != v.type()) {
      differences.push_back(fmt::format("{} is {}, expected {}", v.name(),
                                        to_string(file.type(v.name())), to_string(v.type())));
    } else {  // a copy: the map is read-only, and plans write into variables
      const Tensor t = file.tensor(v.name());
      values.emplace_back(v, Tensor::from_bytes(t.type(), t.bytes(), size_t(t.type().bytes())));
    }
  }
  for (const std::string& name : file.names())
    if (!known.contains(name)) differences.push_back(name + " is not part of this run");
  if (!differences.empty()) {
    constexpr size_t kShown = 8;
    const size_t shown = std::min(differences.size(), kShown);
    fail(ErrorCode::invalid_argument,
         fmt::format("resume: {} is of another run: {} differences:\n  {}{}", printable(path),
                     differences.size(),
                     fmt::join(differences.begin(), differences.begin() + int64_t(shown), "\n  "),
                     differences.size() > shown ? "\n  …" : ""),
         "Resume with the model and optimiser that it was started with, or start a new run from "
         "its weights alone");
  }
  for (auto& [variable, value] : values) variable.set_value(std::move(value));
  step.set_counters(out.counters);
  return out;
}

}  // namespace cairn::train
