// SPDX-License-Identifier: Apache-2.0
// The caching allocator: freed blocks wait in size classes, so that steady state takes no page fault.
#include <cairn/tensor.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <unordered_map>

#include "core/memory.h"

namespace cairn {

size_t machine_memory() {
  static const size_t bytes = [] {
    size_t all = size_t(::sysconf(_SC_PHYS_PAGES)) * size_t(::sysconf(_SC_PAGESIZE)), group = 0;
    if (std::ifstream("/sys/fs/cgroup/memory.max") >> group && group > 0) all = std::min(all, group);  // else "max"
    return all;
  }();
  return bytes;
}

namespace {

constexpr size_t kAlignment = 64, kHugePage = size_t(2) << 20;

// Size classes: eight steps a power of two, so at most 12.5 % is lost.
size_t size_class(size_t bytes) {
  bytes = std::max<size_t>(bytes, kAlignment);
  if (bytes >= kHugePage) return (bytes + kHugePage - 1) & ~(kHugePage - 1);
  const size_t step = std::max<size_t>(kAlignment, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) & ~(step - 1);
}

class Allocator {
 public:
  static Allocator& instance() {
    static auto* allocator = new Allocator;  // never destroyed: tensors may outlive static objects
    return *allocator;
  }

  std::byte* take(size_t bytes) {
    const size_t size = size_class(bytes);
    {
      std::lock_guard lock(mutex_);
      if (stats_.in_use + size > limit_) refuse(bytes);
      if (auto& list = free_[size]; !list.empty()) {
        std::byte* data = list.back();
        list.pop_back();
        stats_.cached -= size;
        return account(data, size);
      }
    }
    std::byte* data = fresh(size);
    if (!data) {
      release_cached();
      data = fresh(size);
    }
    std::lock_guard lock(mutex_);
    if (!data) refuse(bytes);
    return account(data, size);
  }

  void give(std::byte* data) {
    std::lock_guard lock(mutex_);
    const auto it = live_.find(data);
    const size_t size = it->second;
    live_.erase(it);
    stats_.in_use -= size;
    stats_.cached += size;
    free_[size].push_back(data);
  }

  void release_cached() {
    std::lock_guard lock(mutex_);
    for (auto& [size, list] : free_)
      for (std::byte* data : list) std::free(data);
    free_.clear();
    stats_.cached = 0;
  }

  MemoryStats stats() {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void set_limit(size_t bytes) {
    std::lock_guard lock(mutex_);
    limit_ = bytes ? bytes : machine_memory();
  }
  size_t limit() {
    std::lock_guard lock(mutex_);
    return limit_;
  }

 private:
  static std::byte* fresh(size_t size) {
    const bool huge = size >= kHugePage;
    void* data = std::aligned_alloc(huge ? kHugePage : kAlignment, size);
    if (data && huge) ::madvise(data, size, MADV_HUGEPAGE);
    return static_cast<std::byte*>(data);
  }

  std::byte* account(std::byte* data, size_t size) {
    live_[data] = size;
    stats_.in_use += size;
    stats_.peak = std::max(stats_.peak, stats_.in_use);
    return data;
  }

  [[noreturn]] void refuse(size_t bytes) {
    std::vector<size_t> sizes;
    for (const auto& [data, size] : live_) sizes.push_back(size);
    std::ranges::sort(sizes, std::greater{});
    std::map<size_t, int, std::greater<>> largest;
    for (size_t size : sizes) {
      if (largest.size() == 5 && !largest.contains(size)) break;
      ++largest[size];
    }
    std::string holders;
    for (const auto& [size, count] : largest)
      holders += fmt::format("{}{} × {:.1f} MB", holders.empty() ? "" : ", ", count, double(size) / 1e6);
    fail(ErrorCode::out_of_memory,
         fmt::format("memory: {:.1f} MB asked for, {:.1f} MB in {} tensors already, limit {:.1f} MB; the largest: {}",
                     double(bytes) / 1e6, double(stats_.in_use) / 1e6, live_.size(), double(limit_) / 1e6,
                     holders.empty() ? "none" : holders),
         "Take a smaller batch or picture size, or raise the limit");
  }

  std::mutex mutex_;
  std::unordered_map<size_t, std::vector<std::byte*>> free_;
  std::unordered_map<std::byte*, size_t> live_;
  MemoryStats stats_;
  size_t limit_ = machine_memory();
};

}  // namespace

std::shared_ptr<Storage> Storage::allocate(size_t bytes) {
  if (bytes > (size_t(1) << 46))
    fail(ErrorCode::out_of_memory, fmt::format("memory: {} bytes asked for in one tensor", bytes));
  return std::shared_ptr<Storage>(new Storage(Allocator::instance().take(bytes), bytes, {}));
}

std::shared_ptr<Storage> Storage::borrow(void* data, size_t bytes, std::function<void()> release) {
  if (!release) release = [] {};
  return std::shared_ptr<Storage>(new Storage(static_cast<std::byte*>(data), bytes, std::move(release)));
}

Storage::Storage(std::byte* data, size_t bytes, std::function<void()> release)
    : data_(data), bytes_(bytes), release_(std::move(release)) {}

Storage::~Storage() {
  if (release_)
    release_();
  else
    Allocator::instance().give(data_);
}

MemoryStats memory_stats() { return Allocator::instance().stats(); }
void release_cached_memory() { Allocator::instance().release_cached(); }
size_t memory_limit() { return Allocator::instance().limit(); }
void set_memory_limit(size_t bytes) { Allocator::instance().set_limit(bytes); }

}  // namespace cairn
