// SPDX-License-Identifier: Apache-2.0
// ONNX → ready model. One compute thread a model owns the OpenMP team; plans are kept for batches of powers of
// two, and a request is filled up to the next of them or cut into several.
#include <cairn/data.h>
#include <cairn/onnx.h>
#include <cairn/serve.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <list>
#include <mutex>
#include <thread>

#include "base/parallel.h"
#include "serve/picture.h"

namespace cairn::serve {
namespace {

DataType to_datatype(DType d) {
  switch (d) {
    case DType::f64: return DataType::f64;
    case DType::f32: return DataType::f32;
    case DType::f16: return DataType::f16;
    case DType::bf16: return DataType::bf16;
    case DType::i64: return DataType::i64;
    case DType::i32: return DataType::i32;
    case DType::i16: return DataType::i16;
    case DType::i8: return DataType::i8;
    case DType::u8: return DataType::u8;
    case DType::boolean: break;
  }
  return DataType::boolean;
}

// Runs tasks one after another on a thread of its own.
class ComputeThread {
 public:
  explicit ComputeThread(int threads)
      : thread_([this, threads] {
          set_thread_count(threads);
          loop();
        }) {}
  ~ComputeThread() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  template <class F>
  auto run(F&& f) {
    std::packaged_task<decltype(f())()> task(std::forward<F>(f));
    auto result = task.get_future();
    {
      std::lock_guard lock(mutex_);
      tasks_.push_back([&task] { task(); });
    }
    wake_.notify_one();
    return result.get();  // the task lives here until it has run
  }

 private:
  void loop() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

class OnnxModel : public Model {
 public:
  OnnxModel(std::string name, const std::string& path, const EngineOptions& options)
      : model_(onnx::Model::read(path)),
                compute_(options.threads > 0 ? options.threads : thread_count()) {
    info_.name = std::move(name);
    info_.version = options.version;
    bool batched = true;
    for (const auto* ports : {&model_.inputs(), &model_.outputs()})
      for (const onnx::Port& p : *ports) {
        batched = batched && !p.shape.empty() && p.shape[0] < 0;
        auto& list = ports == &model_.inputs() ? info_.inputs : info_.outputs;
        list.push_back({p.name, to_datatype(p.dtype), p.shape, false, {}});
      }
    info_.max_batch = batched ? std::max<int64_t>(1, options.max_batch) : 0;
    const auto& metadata = model_.metadata();
    if (!metadata.transform.empty() && info_.inputs.size() == 1 && batched) {
      transform_ = data::Transform(metadata.transform);
      info_.inputs[0].picture = true;
    }
    for (TensorInfo& out : info_.outputs)
      if (!out.shape.empty() && out.shape.back() == int64_t(metadata.labels.size())) out.labels = metadata.labels;
    // Compile for one record now, so that a model that cannot run is refused at start, not at a request.
    std::vector<TensorType> types;
    bool fixed = true;
    for (const onnx::Port& p : model_.inputs()) {
      TensorType t{p.dtype, {}};
      for (size_t i = 0; i < p.shape.size(); ++i) {
        fixed = fixed && (p.shape[i] >= 0 || i == 0);
        t.shape.push_back(p.shape[i] < 0 ? 1 : p.shape[i]);
      }
      types.push_back(t);
    }
    if (fixed) compute_.run([&] { plan(types); });
  }

  const ModelInfo& info() const noexcept override { return info_; }

  std::vector<Blob> infer(std::span<const Blob> inputs) override {
    std::vector<Tensor> in;
    for (size_t i = 0; i < inputs.size(); ++i)
      in.push_back(inputs[i].datatype == DataType::bytes ? pictures(inputs[i]) : tensor(inputs[i], model_.inputs()[i].dtype));
    const auto out = compute_.run([&] { return info_.max_batch > 0 ? in_batch(in) : plan_for(in).run(in); });
    std::vector<Blob> blobs;
    for (size_t i = 0; i < out.size(); ++i) {
      auto keep = std::make_shared<Tensor>(out[i].dense());
      blobs.push_back({info_.outputs[i].datatype,
                       {keep->shape().begin(), keep->shape().end()},
                       {keep->bytes(), size_t(keep->type().bytes())},
                       keep});
    }
    return blobs;
  }

 private:
  Tensor tensor(const Blob& blob, DType dtype) const {
    const Shape shape(blob.shape);
    auto storage = Storage::borrow(const_cast<std::byte*>(blob.bytes.data()), blob.bytes.size(), [owner = blob.owner] {});
    return Tensor::view(std::move(storage), {dtype, shape}, dense_strides(shape));
  }

  // Encoded pictures through the model's own preprocessing.
  Tensor pictures(const Blob& blob) const {
    return cast(tensor(decode_pictures(blob, transform_), DType::f32), model_.inputs()[0].dtype);
  }

  // On the compute thread: the rows filled up to a power of two, so that few plans serve all sizes.
  std::vector<Tensor> in_batch(std::vector<Tensor> in) {
    const int64_t rows = in[0].shape()[0];
    int64_t size = 1;
    while (size < rows) size *= 2;
    for (Tensor& t : in) {
      std::vector<int64_t> before(size_t(t.rank()), 0), after(size_t(t.rank()), 0);
      after[0] = size - rows;
      if (size > rows) t = pad(t, before, after);
    }
    std::vector<Tensor> out = plan_for(in).run(in);
    for (Tensor& t : out) {
      std::vector<int64_t> begin(size_t(t.rank()), 0), end(t.shape().begin(), t.shape().end());
      end[0] = rows;
      if (size > rows) t = slice(t, begin, end).dense();
    }
    return out;
  }

  Plan& plan_for(const std::vector<Tensor>& in) {
    std::vector<TensorType> types;
    for (const Tensor& t : in) types.push_back(t.type());
    return plan(types);
  }
  Plan& plan(const std::vector<TensorType>& types) {
    std::string key;
    for (const TensorType& t : types) key += to_string(t);
    const auto it = std::ranges::find(plans_, key, &std::pair<std::string, Plan>::first);
    if (it != plans_.end()) {
      plans_.splice(plans_.begin(), plans_, it);
    } else {
      plans_.emplace_front(key, Plan(model_.graph(types)));
      if (plans_.size() > kMostPlans) plans_.pop_back();
    }
    return plans_.front().second;
  }
  static constexpr size_t kMostPlans = 8;

  onnx::Model model_;
  ModelInfo info_;
  data::Transform transform_;
  std::list<std::pair<std::string, Plan>> plans_;  // the latest first; used on the compute thread alone
  ComputeThread compute_;              // last: ends before what it uses
};

}  // namespace

std::shared_ptr<Model> load_onnx(const std::string& name, const std::string& path, const EngineOptions& options) {
  return std::make_shared<OnnxModel>(name, path, options);
}

}  // namespace cairn::serve
