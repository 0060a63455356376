// SPDX-License-Identifier: Apache-2.0
// The loader: records → prefetched batches, in an order and with bits that no thread can change.
#pragma once
#include <cairn/data.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "data/decode.h"

namespace cairn::data {

// Workers claim rows, not batches: the rows of the oldest open batch first, so the first batch is soon
// there and at most `depth` batches exist. A row is written straight to its place in the batch.
struct Loader::Impl {
  Impl(Dataset data, int64_t batch_size, const BatchOptions& options);
  ~Impl();

  std::optional<Batch> next();
  void seek(Position position);
  void shuffle(uint64_t seed);

  struct Slot {  // one batch in the making
    Position at;
    std::vector<int64_t> records;
    Tensor x;
    std::vector<uint8_t> bad;  // rows whose picture could not be used
    size_t claimed = 0, remaining = 0;
    std::exception_ptr error;  // of the lowest row that threw
    size_t error_row = 0;
  };

  // All under mutex_.
  bool claim(std::shared_ptr<Slot>& slot, size_t& row);
  void open_slot();
  void finish_row(Slot& slot, size_t row, std::exception_ptr error);
  void start();

  void work();                                 // a worker's life
  void load_row(Slot& slot, size_t row);
  std::exception_ptr load(Slot& slot, size_t row) noexcept;  // load_row's error, for next() to throw
  std::shared_ptr<const Picture> picture(int64_t record);  // decoded, fixed steps done; from the cache if there
  Batch hand_out(Slot& slot) const;

  const Dataset data_;
  BatchOptions options_;
  const int64_t batch_size_;
  int64_t batches_ = 0;
  Size size_;              // of every picture behind the transform
  std::string size_from_;  // the record that size_ was learnt from; "" when the transform fixes it
  int workers_ = 0;
  int64_t batch_bytes_ = 0, depth_ = 1, cache_limit_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable work_, ready_;
  bool stop_ = false, started_ = false;
  std::exception_ptr fatal_;  // a worker ended: for next() to throw
  Position position_, frontier_;            // next to hand out, next to open
  std::deque<std::shared_ptr<Slot>> window_;  // position_ … frontier_
  std::vector<int64_t> order_;
  int64_t order_epoch_ = -1;
  int64_t rows_in_epoch_ = 0;  // usable ones handed out since its beginning
  Report report_;
  std::set<int64_t> reported_;

  std::mutex cache_mutex_;
  std::vector<std::shared_ptr<const Picture>> cache_;
  int64_t cached_bytes_ = 0;

  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace cairn::data
