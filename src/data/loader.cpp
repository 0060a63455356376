// SPDX-License-Identifier: Apache-2.0
#include "data/loader.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/file.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/random.h"
#include "data/check.h"
#include "data/transform.h"

namespace cairn::data {
namespace {

int64_t default_cache_bytes() {
  const int64_t memory = int64_t(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  return std::min<int64_t>(int64_t(1) << 30, memory / 8);
}

std::string describe(const Record& r) {
  return printable(r.path) + (r.line ? fmt::format(" (line {} of the list)", r.line) : "");
}

}  // namespace

Loader::Impl::Impl(Dataset data, int64_t batch_size, const BatchOptions& options)
    : data_(std::move(data)), options_(options), batch_size_(batch_size) {
  const int64_t count = data_.size();
  if (batch_size < 1) fail(ErrorCode::invalid_argument, fmt::format("data: batch size: got {}, expected 1 or more", batch_size));
  if (count == 0) fail(ErrorCode::invalid_argument, "data: there are no records to make batches of");
  batches_ = options.drop_last ? count / batch_size : (count + batch_size - 1) / batch_size;
  if (batches_ == 0)
    fail(ErrorCode::invalid_argument,
         fmt::format("data: {} records make no full batch of {}, and the last batch is to be left out", count, batch_size),
         "Take a smaller batch, or keep the last one");
  if (const auto fixed = data_.transform().output_size()) {
    size_ = *fixed;
  } else {  // then all pictures must be alike: learn from the first that can be read
    Report failures;
    for (int64_t i = 0; i < count && size_from_.empty(); ++i) {
      const Record& r = data_.records()[size_t(i)];
      try {
        size_ = data_.transform().output_size(decode_file(r.path, Color::stored, data_.limits()).picture.size());
        size_from_ = describe(r);
      } catch (const DecodeError& e) {
        failures.add(failure_of(r, e));
      }
    }
    if (size_from_.empty())
      fail(ErrorCode::invalid_argument, "data: none of the pictures can be used: " + failures.summary());
  }
  workers_ = worker_count(options.workers);
  batch_bytes_ = std::min(batch_size, count) * data_.transform().channels() * int64_t(size_.width) * size_.height * 4;
  depth_ = workers_ == 0 ? 1 : std::clamp<int64_t>(int64_t(options.queue_bytes) / batch_bytes_, 1, 16);
  cache_limit_ = options.cache_bytes == size_t(-1) ? default_cache_bytes() : int64_t(options.cache_bytes);
  cache_.resize(size_t(count));
}

Loader::Impl::~Impl() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Loader::Impl::start() {
  started_ = true;
  try {
    for (int t = 0; t < workers_; ++t) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& e) {
    workers_ = int(threads_.size());
    log(LogLevel::warning, "data", fmt::format("only {} loading threads could be started: {}", workers_, e.what()));
  }
  log(LogLevel::info, "data",
      fmt::format("{} loading threads; at most {} batches of {} bytes wait; pictures kept: at most {} bytes", workers_,
                  depth_, batch_bytes_, cache_limit_));
}

void Loader::Impl::open_slot() {
  auto slot = std::make_shared<Slot>();
  slot->at = frontier_;
  if (order_epoch_ != frontier_.epoch) {
    order_.resize(size_t(data_.size()));
    std::iota(order_.begin(), order_.end(), 0);
    if (options_.shuffle) {
      constexpr uint64_t kShuffle = hash("shuffle");
      Random(mix(options_.seed, kShuffle), uint64_t(frontier_.epoch)).shuffle(order_);
    }
    order_epoch_ = frontier_.epoch;
  }
  const int64_t begin = frontier_.batch * batch_size_, end = std::min(begin + batch_size_, data_.size());
  slot->records.assign(order_.begin() + begin, order_.begin() + end);
  slot->bad.assign(slot->records.size(), 0);
  slot->remaining = slot->records.size();
  slot->x = Tensor::uninitialized(
      {DType::f32, {end - begin, data_.transform().channels(), size_.height, size_.width}});
  window_.push_back(std::move(slot));
  if (++frontier_.batch == batches_) frontier_ = {frontier_.epoch + 1, 0};
}

bool Loader::Impl::claim(std::shared_ptr<Slot>& slot, size_t& row) {
  if (window_.empty() || window_.back()->claimed == window_.back()->records.size()) {
    // Without shuffling (evaluation) one epoch is all that is wanted, until the caller goes on.
    const bool wanted = options_.shuffle || frontier_.epoch == position_.epoch;
    if (int64_t(window_.size()) >= depth_ || !wanted) return false;
    open_slot();
  }
  slot = window_.back();
  row = slot->claimed++;
  return true;
}

void Loader::Impl::finish_row(Slot& slot, size_t row, std::exception_ptr error) {
  if (error && (!slot.error || row < slot.error_row)) {
    slot.error = error;
    slot.error_row = row;
  }
  if (--slot.remaining == 0) ready_.notify_all();
}

void Loader::Impl::work() {
  set_thread_count(1);
  std::unique_lock lock(mutex_);
  try {
    while (true) {
      std::shared_ptr<Slot> slot;
      size_t row = 0;
      work_.wait(lock, [&] { return stop_ || claim(slot, row); });
      if (stop_) return;
      lock.unlock();
      auto error = load(*slot, row);
      lock.lock();
      finish_row(*slot, row, error);
    }
  } catch (...) {  // no memory for another batch
    fatal_ = std::current_exception();
    ready_.notify_all();
  }
}

std::shared_ptr<const Picture> Loader::Impl::picture(int64_t record) {
  {
    std::lock_guard lock(cache_mutex_);
    if (cache_[size_t(record)]) return cache_[size_t(record)];
  }
  const auto& transform = data_.transform();
  const Record& r = data_.records()[size_t(record)];
  Decoded decoded = decode_file(r.path, transform.plan().color, data_.limits());
  auto out = std::make_shared<const Picture>(apply_fixed(transform, std::move(decoded.picture)));
  std::lock_guard lock(cache_mutex_);
  const int64_t bytes = int64_t(out->bytes());
  if (!cache_[size_t(record)] && cached_bytes_ + bytes <= cache_limit_) {
    cache_[size_t(record)] = out;
    cached_bytes_ += bytes;
  }
  return out;
}

void Loader::Impl::load_row(Slot& slot, size_t row) {
  const int64_t index = slot.records[row];
  const Record& record = data_.records()[size_t(index)];
  const auto& transform = data_.transform();
  try {
    std::shared_ptr<const Picture> ready = picture(index);
    if (transform.random())
      ready = std::make_shared<const Picture>(
          apply_random(transform, ready->copy(), {options_.seed, slot.at.epoch, index}));
    if (ready->size() != size_)
      fail(ErrorCode::shape_mismatch,
           fmt::format("data: all pictures of a batch have one size: {} comes to {} x {}, expected {} x {}{}",
                       describe(record), ready->width(), ready->height(), size_.width, size_.height,
                       size_from_.empty() ? "" : " as " + size_from_),
           "Put resize=… or center_crop=… into the transform");
    const int64_t values = slot.x.numel() / int64_t(slot.records.size());
    write_planes(transform, *ready, slot.x.mutable_data<float>() + int64_t(row) * values);
  } catch (Error& e) {
    if (!dynamic_cast<DecodeError*>(&e) || options_.fail_on_bad_picture) {
      e.add_frame("record " + describe(record));
      throw;
    }
    slot.bad[row] = 1;
    std::lock_guard lock(mutex_);
    if (reported_.insert(index).second) report_.add(failure_of(record, e));
  }
}

std::exception_ptr Loader::Impl::load(Slot& slot, size_t row) noexcept {
  try {
    load_row(slot, row);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

Batch Loader::Impl::hand_out(Slot& slot) const {
  Batch out;
  out.epoch = slot.at.epoch;
  out.index = slot.at.batch;
  const int64_t rows = int64_t(slot.records.size()), values = slot.x.numel() / rows;
  float* x = slot.x.mutable_data<float>();
  std::vector<int64_t> labels;
  for (int64_t row = 0; row < rows; ++row) {
    if (slot.bad[size_t(row)]) continue;
    const int64_t to = int64_t(labels.size());
    if (to != row) std::memmove(x + to * values, x + row * values, size_t(values) * sizeof(float));
    out.records.push_back(slot.records[size_t(row)]);
    labels.push_back(data_.records()[size_t(out.records.back())].label);
  }
  const int64_t kept = int64_t(labels.size());
  Shape shape = slot.x.shape();
  shape[0] = kept;
  out.x = kept == rows ? slot.x : Tensor::view(slot.x.storage(), {DType::f32, shape}, dense_strides(shape), slot.x.offset());
  out.y = Tensor::from(labels, {kept});
  return out;
}

std::optional<Batch> Loader::Impl::next() {
  std::unique_lock lock(mutex_);
  if (!started_) start();
  while (true) {
    if (position_.batch >= batches_) {
      const bool none = rows_in_epoch_ == 0;
      position_ = {position_.epoch + 1, 0};
      rows_in_epoch_ = 0;
      if (none) fail(ErrorCode::invalid_argument, "data: none of the pictures can be used: " + report_.summary());
      work_.notify_all();
      return {};
    }
    const auto ready = [&] { return !window_.empty() && window_.front()->remaining == 0; };
    if (threads_.empty()) {
      while (!ready()) {
        std::shared_ptr<Slot> slot;
        size_t row = 0;
        CAIRN_CHECK(claim(slot, row), "a batch is wanted, and the window is empty");
        lock.unlock();
        auto error = load(*slot, row);
        lock.lock();
        finish_row(*slot, row, error);
      }
    } else {
      work_.notify_all();
      ready_.wait(lock, [&] { return ready() || fatal_; });
      if (!ready()) std::rethrow_exception(fatal_);
    }
    const auto slot = window_.front();
    window_.pop_front();
    ++position_.batch;
    work_.notify_all();
    if (slot->error) {
      ++rows_in_epoch_;  // the error has been told
      std::rethrow_exception(slot->error);
    }
    lock.unlock();
    Batch batch = hand_out(*slot);
    lock.lock();
    if (batch.records.empty()) continue;
    rows_in_epoch_ += int64_t(batch.records.size());
    return batch;
  }
}

void Loader::Impl::seek(Position position) {
  if (position.epoch < 0 || position.batch < 0 || position.batch > batches_)
    fail(ErrorCode::invalid_argument, fmt::format("data: position epoch {}, batch {}: expected 0 … {} batches", position.epoch,
                                                  position.batch, batches_));
  std::lock_guard lock(mutex_);
  window_.clear();  // rows in flight end in slots that nobody reads
  position_ = frontier_ = position;
  if (frontier_.batch == batches_) frontier_ = {position.epoch + 1, 0};
  rows_in_epoch_ = position.batch > 0;
  work_.notify_all();
}

void Loader::Impl::shuffle(uint64_t seed) {
  {
    std::lock_guard lock(mutex_);
    window_.clear();
    options_.shuffle = true;
    options_.seed = seed;
    order_epoch_ = -1;
  }
  seek({});
}

Loader::Loader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;
Loader::~Loader() = default;
std::optional<Batch> Loader::next() { return impl_->next(); }
Position Loader::position() const { return impl_->position_; }
void Loader::seek(Position position) { impl_->seek(position); }
void Loader::shuffle(uint64_t seed) { impl_->shuffle(seed); }
int64_t Loader::size() const { return impl_->data_.size(); }
int64_t Loader::batch_size() const { return impl_->batch_size_; }
int64_t Loader::batches() const { return impl_->batches_; }
Shape Loader::input_shape() const {
  return {impl_->data_.transform().channels(), impl_->size_.height, impl_->size_.width};
}
int Loader::workers() const { return impl_->workers_; }
int64_t Loader::memory_bound() const { return impl_->depth_ * impl_->batch_bytes_ + impl_->cache_limit_; }
const Transform& Loader::transform() const { return impl_->data_.transform(); }
const std::vector<std::string>& Loader::classes() const { return impl_->data_.classes(); }
Report Loader::report() const {
  std::lock_guard lock(impl_->mutex_);
  return impl_->report_;
}

}  // namespace cairn::data
