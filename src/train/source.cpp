// SPDX-License-Identifier: Apache-2.0
// Where a trainer's batches come from: a data loader, or tensors in memory.
#include <cairn/train.h>
#include <fmt/format.h>

#include <cstring>
#include <numeric>

#include "base/random.h"

namespace cairn::train {
namespace {

class LoaderSource : public Source {
 public:
  explicit LoaderSource(data::Loader& loader) : loader_(&loader) {}
  explicit LoaderSource(data::Loader&& loader)
      : owned_(std::make_unique<data::Loader>(std::move(loader))), loader_(owned_.get()) {}
  std::optional<data::Batch> next() override { return loader_->next(); }
  void seek(data::Position position) override { loader_->seek(position); }
  void shuffle(uint64_t seed) override { loader_->shuffle(seed); }
  int64_t size() const override { return loader_->size(); }
  int64_t batch_size() const override { return loader_->batch_size(); }
  int64_t batches() const override { return loader_->batches(); }
  TensorType input_type() const override { return {DType::f32, loader_->input_shape()}; }
  std::vector<std::string> classes() const override { return loader_->classes(); }
  std::string transform() const override { return loader_->transform().recipe(); }
  std::string report() const override { return loader_->report().json(); }

 private:
  std::unique_ptr<data::Loader> owned_;
  data::Loader* loader_;
};

class TensorSource : public Source {
 public:
  TensorSource(const Tensor& x, const Tensor& y, int64_t batch, std::vector<std::string> classes)
      : x_(x.dense()), y_(y.dense()), batch_(batch), classes_(std::move(classes)) {
    if (x.rank() < 1 || y.rank() < 1 || x.shape()[0] != y.shape()[0] || x.shape()[0] < 1 ||
        batch < 1)
      fail(ErrorCode::invalid_argument,
           fmt::format("batches: got x {}, y {} in batches of {}, expected as many rows of "
                       "each, one or more",
                       to_string(x.type()), to_string(y.type()), batch));
  }

  std::optional<data::Batch> next() override {
    if (position_.batch == batches()) {
      position_ = {position_.epoch + 1, 0};
      return std::nullopt;
    }
    std::vector<int64_t> order(size_t(size()), 0);
    std::iota(order.begin(), order.end(), 0);
    if (seed_) Random(*seed_, uint64_t(position_.epoch)).shuffle(order);
    const int64_t begin = position_.batch * batch_, end = std::min(begin + batch_, size());
    data::Batch out;
    out.records.assign(order.begin() + begin, order.begin() + end);
    out.x = rows(x_, out.records);
    out.y = rows(y_, out.records);
    out.epoch = position_.epoch;
    out.index = position_.batch++;
    return out;
  }
  void seek(data::Position position) override { position_ = position; }
  void shuffle(uint64_t seed) override { seed_ = seed, position_ = {}; }
  int64_t size() const override { return x_.shape()[0]; }
  int64_t batch_size() const override { return batch_; }
  int64_t batches() const override { return (size() + batch_ - 1) / batch_; }
  TensorType input_type() const override {
    TensorType t = x_.type();
    t.shape.erase(0);
    return t;
  }
  std::vector<std::string> classes() const override { return classes_; }

 private:
  static Tensor rows(const Tensor& from, const std::vector<int64_t>& which) {
    TensorType type = from.type();
    const size_t row = size_t(type.bytes() / type.shape[0]);
    type.shape[0] = int64_t(which.size());
    Tensor out = Tensor::uninitialized(type);
    for (size_t i = 0; i < which.size(); ++i)
      std::memcpy(out.mutable_bytes() + i * row, from.bytes() + size_t(which[i]) * row, row);
    return out;
  }

  Tensor x_, y_;
  int64_t batch_;
  std::vector<std::string> classes_;
  std::optional<uint64_t> seed_;
  data::Position position_;
};

}  // namespace

Batches::Batches(data::Loader& loader) : source_(std::make_shared<LoaderSource>(loader)) {}
Batches::Batches(data::Loader&& loader)
    : source_(std::make_shared<LoaderSource>(std::move(loader))) {}
Batches Batches::of(const Tensor& x, const Tensor& y, int64_t batch_size,
                    std::vector<std::string> classes) {
  return Batches(std::make_shared<TensorSource>(x, y, batch_size, std::move(classes)));
}

}  // namespace cairn::train
