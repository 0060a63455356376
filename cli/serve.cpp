// SPDX-License-Identifier: Apache-2.0
// cairn serve: models behind the KServe/Triton v2 protocol.
#include <cairn/serve.h>
#include <fmt/format.h>

#include <iostream>
#include <thread>

#include "base/file.h"
#include "cli/verbs.h"

namespace cairn::cli {
namespace {

struct Options {
  std::vector<std::string> models;
  serve::ServerOptions server;
  int threads = 0;
  int64_t max_batch = 32, grace = 30;
};

void run(Options o) {
  const int threads = apply_threads(o.threads);
  serve::Server server(o.server);
  for (const std::string& spec : o.models) {
    const auto at = spec.find('=');
    if (at == 0 || at == spec.npos || at + 1 == spec.size())
      fail(ErrorCode::invalid_argument, "serve: --model got '" + spec + "', expected NAME=model.onnx");
    const std::string name = spec.substr(0, at), path = spec.substr(at + 1);
    server.add(serve::load_onnx(name, path, {.threads = threads, .max_batch = o.max_batch}));
    std::cerr << fmt::format("model {} from {}\n", name, printable(path));
  }
  server.start();
  std::cerr << fmt::format("listening on http://{}:{} ({} threads). Ctrl-C stops\n", o.server.address, server.port(), threads);
  while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::cerr << "stopping: finishing what is under way\n";
  server.stop(std::chrono::seconds(o.grace));
  std::cerr << "stopped\n";
}

}  // namespace

void add_serve(CLI::App& app) {
  auto o = std::make_shared<Options>();
  auto* verb = app.add_subcommand("serve", "Serve models over HTTP (KServe/Triton v2 protocol)");
  verb->add_option("--model", o->models, "NAME=model.onnx (may repeat)")->required();
  verb->add_option("--address", o->server.address, "0.0.0.0 to be reached from other machines")->capture_default_str();
  verb->add_option("--port", o->server.port, "0: any free one")->capture_default_str();
  add_threads(verb, o->threads);
  verb->add_option("--max-batch", o->max_batch, "rows computed at once")->capture_default_str()->check(CLI::Range(1, 4096));
  verb->add_option("--grace", o->grace, "seconds that a stop waits for requests under way")->capture_default_str()->check(CLI::Range(0, 86400));
  verb->footer(
      "Example:\n"
      "  cairn serve --model cells=runs/cells/model.onnx --port 8000\n"
      "  curl http://127.0.0.1:8000/v2/models/cells\n"
      "The picture input takes FP32 tensors, or BYTES: encoded JPEG or PNG files.");
  verb->callback([o] { run(*o); });
}

}  // namespace cairn::cli
