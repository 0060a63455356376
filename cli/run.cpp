// SPDX-License-Identifier: Apache-2.0
// cairn run: a model on tensors from a file.
#include <cairn/onnx.h>
#include <cairn/safetensors.h>
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/verbs.h"

namespace cairn::cli {
namespace {

struct Options {
  std::string model, inputs, out, maths = "fast";
  int threads = 0;
  bool json = false;
};

void run(const Options& o) {
  const int threads = apply_threads(o.threads);
  refuse_overwrite(o.out, {o.model, o.inputs});
  const auto model = onnx::Model::read(o.model);
  const SafetensorsFile file(o.inputs);
  std::vector<Tensor> in;
  std::vector<TensorType> types;
  for (const auto& port : model.inputs()) {
    in.push_back(file.tensor(port.name));
    types.push_back(in.back().type());
  }
  Plan plan(model.graph(types), {.threads = threads, .exact = o.maths == "exact"});
  const auto results = plan.run(in);
  NamedTensors out;
  nlohmann::json types_out;
  for (size_t i = 0; i < results.size(); ++i) {
    out.emplace_back(model.outputs()[i].name, results[i]);
    types_out[model.outputs()[i].name] = to_string(results[i].type());
  }
  if (!o.out.empty()) write_safetensors(o.out, out);
  if (o.json) {
    std::cout << types_out.dump() << "\n";
  } else {
    for (const auto& [name, tensor] : out) std::cout << fmt::format("{} {}\n", name, tensor.to_string(8));
  }
}

}  // namespace

void add_run(CLI::App& app) {
  auto o = std::make_shared<Options>();
  auto* verb = app.add_subcommand("run", "Run an ONNX model on tensors from a safetensors file");
  verb->add_option("model", o->model, "model.onnx")->required();
  verb->add_option("--inputs", o->inputs, "safetensors; names are those of the model's inputs")->required();
  verb->add_option("--out", o->out, "safetensors for the outputs");
  add_threads(verb, o->threads);
  add_maths(verb, o->maths);
  verb->add_flag("--json", o->json, "names and types of the outputs as JSON");
  verb->footer("Example:\n  cairn run runs/cells/model.onnx --inputs in.safetensors --out out.safetensors");
  verb->callback([o] { run(*o); });
}

}  // namespace cairn::cli
