// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <algorithm>
#include <exception>
#include <mutex>

#ifdef CAIRN_STD_THREADS
#include <sched.h>

#include <thread>
#include <vector>
#else
#include <omp.h>
#endif

namespace cairn {
namespace {

// Carries the first exception of a parallel region out of it.
class FirstError {
 public:
  template <class F>
  void guard(F&& f) noexcept {
    try {
      f();
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

#ifdef CAIRN_STD_THREADS
thread_local int threads = 0;
thread_local bool inside = false;

template <class F>
void region(int n, F&& f) {
  std::vector<std::thread> others;
  for (int t = 1; t < n; ++t) others.emplace_back([&f, t] { inside = true, f(t); });
  inside = true;
  f(0);
  inside = false;
  for (auto& other : others) other.join();
}
bool in_region() { return inside; }
#else
template <class F>
void region(int n, F&& f) {
#pragma omp parallel num_threads(n)
  f(omp_get_thread_num());
}
bool in_region() { return omp_in_parallel(); }
#endif

}  // namespace

#ifdef CAIRN_STD_THREADS
int thread_count() {
  if (threads == 0) {
    cpu_set_t set;
    threads = sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
  }
  return threads;
}
void set_thread_count(int count) { threads = std::max(1, count); }
#else
int thread_count() { return omp_get_max_threads(); }
void set_thread_count(int count) { omp_set_num_threads(std::max(1, count)); }
#endif

void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(1, grain);
  const int64_t parts = std::min<int64_t>(thread_count(), (count + grain - 1) / grain);
  if (parts <= 1 || in_region()) return body(0, count);
  FirstError error;
  region(int(parts), [&](int t) {
    const int64_t begin = count * t / parts, end = count * (t + 1) / parts;
    if (begin < end) error.guard([&] { body(begin, end); });
  });
  error.rethrow();
}

void parallel_chunks(int64_t count, const std::function<void(int, int64_t, int64_t)>& body) {
  const int64_t chunks = std::min<int64_t>(kLogicalChunks, count);
  parallel_for(chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c)
      body(int(c), count * c / chunks, count * (c + 1) / chunks);
  });
}

}  // namespace cairn
