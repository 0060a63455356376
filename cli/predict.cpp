// SPDX-License-Identifier: Apache-2.0
// cairn predict: what a model says of pictures.
#include <cairn/data.h>
#include <cairn/onnx.h>
#include <cairn/serve.h>
#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/verbs.h"
#include "data/check.h"
#include "inspect/table.h"

namespace cairn::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string model;
  std::vector<std::string> inputs;
  int64_t batch = 16, top = 1;
  int threads = 0;
  bool json = false;
};

bool is_picture_name(const fs::path& p) {
  std::string s = p.extension().string();
  std::ranges::transform(s, s.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return s == ".jpg" || s == ".jpeg" || s == ".png";
}

// Files as given, folders searched, patterns expanded; sorted within each.
std::vector<fs::path> expand(const std::vector<std::string>& inputs) {
  std::vector<fs::path> files;
  for (const std::string& input : inputs) {
    std::error_code ec;
    if (fs::is_directory(input, ec)) {
      std::vector<fs::path> found;
      for (fs::recursive_directory_iterator it(input, fs::directory_options::skip_permission_denied, ec), end; it != end;
           it.increment(ec)) {
        if (ec) fail(ErrorCode::io, "predict: " + printable(input) + ": " + ec.message());
        const bool hidden = it->path().filename().string().starts_with('.');
        if (it->is_directory(ec) && hidden) it.disable_recursion_pending();
        else if (!hidden && it->is_regular_file(ec) && is_picture_name(it->path())) found.push_back(it->path());
      }
      std::ranges::sort(found);
      if (found.empty()) fail(ErrorCode::not_found, "predict: no pictures in " + printable(input));
      files.insert(files.end(), found.begin(), found.end());
    } else if (!fs::exists(input, ec) && input.find_first_of("*?[") != input.npos) {
      glob_t g{};
      const int status = ::glob(input.c_str(), 0, nullptr, &g);
      for (size_t i = 0; i < g.gl_pathc; ++i) files.emplace_back(g.gl_pathv[i]);
      ::globfree(&g);
      if (status != 0) fail(ErrorCode::not_found, "predict: nothing matches " + printable(input));
    } else {
      files.emplace_back(input);
    }
  }
  return files;
}

struct Answer {
  fs::path file;
  std::vector<float> scores;  // empty: failed
  std::string error;
};

void print(const std::vector<Answer>& answers, const std::vector<std::string>& labels, const Options& o) {
  const auto label = [&](size_t i) { return i < labels.size() ? labels[i] : std::to_string(i); };
  inspect::Table table({{"picture"}, {"class"}, {"score", inspect::Table::Align::right}});
  for (const Answer& a : answers) {
    std::vector<size_t> order(a.scores.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, [&](size_t x, size_t y) { return a.scores[x] > a.scores[y]; });
    order.resize(std::min(order.size(), size_t(o.top)));
    if (o.json) {
      nlohmann::ordered_json line{{"file", a.file.string()}};
      if (a.scores.empty()) {
        line["error"] = a.error;
      } else {
        line["class"] = label(order[0]);
        line["score"] = a.scores[order[0]];
        for (size_t i = 0; i < a.scores.size(); ++i) line["scores"][label(i)] = a.scores[i];
      }
      std::cout << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    } else if (a.scores.empty()) {
      std::cerr << fmt::format("failed: {}: {}\n", printable(a.file), a.error);
    } else {
      for (size_t k = 0; k < order.size(); ++k)
        table.row({k == 0 ? printable(a.file) : "", label(order[k]), fmt::format("{:.4f}", a.scores[order[k]])});
    }
  }
  if (!o.json) std::cout << table.str();
}

void run(const Options& o) {
  const int threads = apply_threads(o.threads);
  const auto onnx = onnx::Model::read(o.model);
  const auto& metadata = onnx.metadata();
  if (metadata.transform.empty())
    fail(ErrorCode::unsupported, "predict: " + printable(o.model) + " does not say how pictures become its input",
         "Use `cairn run` with tensors");
  const data::Transform transform(metadata.transform);
  if (!transform.eval().output_size())
    fail(ErrorCode::unsupported, "predict: '" + metadata.transform + "' gives each picture another size, so they make no batch",
         "End the model's recipe with resize or center_crop");
  const auto model = serve::load_onnx("model", o.model, {.threads = threads, .max_batch = o.batch});
  const serve::ModelInfo& info = model->info();
  if (info.inputs.size() != 1 || info.outputs[0].datatype != serve::DataType::f32)
    fail(ErrorCode::unsupported, "predict: " + printable(o.model) + " is no classifier of one picture with f32 scores",
         "Use `cairn run` with tensors");
  const auto files = expand(o.inputs);
  std::vector<Answer> answers;
  for (size_t at = 0; at < files.size() && !interrupted(); at += size_t(o.batch)) {
    // Decoded one by one, so that a bad picture does not take the batch with it.
    const size_t count = std::min(files.size() - at, size_t(o.batch));
    std::vector<Tensor> pictures(count);
    for (size_t i = 0; i < count; ++i) answers.push_back({files[at + i], {}, {}});
    data::for_each_on_workers(int64_t(count), data::worker_count(threads), [&](int64_t i) {
      try {
        pictures[size_t(i)] = data::decode_picture(read_file(files[at + size_t(i)], size_t(data::Limits{}.max_file)), transform);
      } catch (const Error& e) {
        if (e.code() == ErrorCode::internal) throw;
        answers[at + size_t(i)].error = e.message();
      }
    });
    std::vector<size_t> rows;
    for (size_t i = 0; i < count; ++i)
      if (pictures[i].defined()) rows.push_back(i);
    if (rows.empty()) continue;
    std::erase_if(pictures, [](const Tensor& t) { return !t.defined(); });
    const auto x = std::make_shared<Tensor>(cast(concat(pictures, 0), onnx.inputs().at(0).dtype));
    const auto out = model->infer(std::vector{serve::Blob{info.inputs[0].datatype,
                                                          {x->shape().begin(), x->shape().end()},
                                                          {x->bytes(), size_t(x->type().bytes())},
                                                          x}});
    const auto scores = out[0].as<float>();
    const size_t classes = scores.size() / rows.size();
    for (size_t r = 0; r < rows.size(); ++r)
      answers[at + rows[r]].scores.assign(scores.begin() + long(r * classes), scores.begin() + long((r + 1) * classes));
  }
  print(answers, metadata.labels, o);
  const auto failed = std::ranges::count_if(answers, [](const Answer& a) { return a.scores.empty(); });
  if (failed > 0) std::cerr << fmt::format("{} of {} pictures failed\n", failed, answers.size());
  if (interrupted()) set_exit_code(130);
  else if (size_t(failed) == answers.size()) set_exit_code(2);
}

}  // namespace

void add_predict(CLI::App& app) {
  auto o = std::make_shared<Options>();
  auto* verb = app.add_subcommand("predict", "Classify pictures with an exported model");
  verb->add_option("model", o->model, "model.onnx")->required();
  verb->add_option("pictures", o->inputs, "files, folders or patterns")->required();
  verb->add_option("--batch", o->batch)->capture_default_str()->check(CLI::Range(1, 1024));
  verb->add_option("--top", o->top, "classes to show for each picture")->capture_default_str()->check(CLI::Range(1, 1000));
  add_threads(verb, o->threads);
  verb->add_flag("--json", o->json, "one JSON object a line, all scores");
  verb->footer("Examples:\n  cairn predict runs/cells/model.onnx some/folder/*.png\n  cairn predict runs/cells/model.onnx some/folder --json");
  verb->callback([o] { run(*o); });
}

}  // namespace cairn::cli
