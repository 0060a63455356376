// SPDX-License-Identifier: Apache-2.0
// Small models for the tests and the demo server: a sum, an echo of every datatype, one that waits.
#pragma once
#include <cairn/serve.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace cairn::serve::testing {

// A model made of its description and a function.
class FunctionModel : public Model {
 public:
  using Function = std::function<std::vector<Blob>(std::span<const Blob>)>;
  FunctionModel(ModelInfo info, Function function)
      : info_(std::move(info)), function_(std::move(function)) {}
  const ModelInfo& info() const noexcept override { return info_; }
  std::vector<Blob> infer(std::span<const Blob> inputs) override { return function_(inputs); }

 private:
  ModelInfo info_;
  Function function_;
};

// sum = a + b, FP32 [-1,4], batches up to 64; "sum" has labels for the classification extension.
inline std::shared_ptr<Model> add_model(std::string version = "1") {
  ModelInfo info{.name = "add", .version = std::move(version), .platform = "test", .max_batch = 64};
  info.inputs = {{"a", DataType::f32, {-1, 4}}, {"b", DataType::f32, {-1, 4}}};
  info.outputs = {{"sum", DataType::f32, {-1, 4}, false, {"north", "east", "south", "west"}}};
  return std::make_shared<FunctionModel>(info, [](std::span<const Blob> in) {
    const auto a = in[0].as<float>(), b = in[1].as<float>();
    std::vector<float> sum(a.size());
    for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
    return std::vector{Blob::of(DataType::f32, in[0].shape, std::move(sum))};
  });
}

// Gives back its one input "x" of any size as "y", without a copy.
inline std::shared_ptr<Model> echo_model(std::string name, DataType type,
                                         std::vector<int64_t> shape = {-1}) {
  ModelInfo info{.name = std::move(name), .platform = "test"};
  info.inputs = {{"x", type, shape}};
  info.outputs = {{"y", type, shape}};
  return std::make_shared<FunctionModel>(
      info, [](std::span<const Blob> in) { return std::vector<Blob>(in.begin(), in.end()); });
}

inline std::vector<std::shared_ptr<Model>> echo_models() {  // echo_BOOL … echo_BYTES
  std::vector<std::shared_ptr<Model>> all;
  for (int t = 0; t <= int(DataType::bytes); ++t)
    all.push_back(echo_model("echo_" + std::string(name(DataType(t))), DataType(t)));
  return all;
}

// A picture input FP32 [-1,1,2,2]; BYTES [n] are "decoded" to n pictures of their lengths.
inline std::shared_ptr<Model> picture_model() {
  ModelInfo info{.name = "picture", .platform = "test", .max_batch = 16};
  info.inputs = {{"image", DataType::f32, {-1, 1, 2, 2}, true}};
  info.outputs = {{"mean", DataType::f32, {-1}}};
  return std::make_shared<FunctionModel>(info, [](std::span<const Blob> in) {
    std::vector<float> mean(size_t(in[0].shape[0]));
    if (in[0].datatype == DataType::bytes) {
      const auto files = strings(in[0]);
      for (size_t i = 0; i < mean.size(); ++i) mean[i] = float(files[i].size());
    } else {
      const auto x = in[0].as<float>();
      for (size_t i = 0; i < mean.size(); ++i)
        mean[i] = (x[4 * i] + x[4 * i + 1] + x[4 * i + 2] + x[4 * i + 3]) / 4;
    }
    const int64_t n = int64_t(mean.size());
    return std::vector{Blob::of(DataType::f32, {n}, std::move(mean))};
  });
}

// Waits in infer() until it is opened; counts the calls.
class GateModel : public Model {
 public:
  GateModel() {
    info_.inputs = {{"x", DataType::i32, {-1}}};
    info_.outputs = {{"y", DataType::i32, {-1}}};
  }
  const ModelInfo& info() const noexcept override { return info_; }
  std::vector<Blob> infer(std::span<const Blob> inputs) override {
    std::unique_lock lock(mutex_);
    ++calls_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    return {inputs.begin(), inputs.end()};
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  int calls() {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  bool wait_for_calls(int n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return calls_ >= n; });
  }

 private:
  ModelInfo info_{.name = "gate", .platform = "test"};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int calls_ = 0;
};

}  // namespace cairn::serve::testing
