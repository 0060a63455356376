// SPDX-License-Identifier: Apache-2.0
// The compute threads: OpenMP, owned by one thread an engine. With CAIRN_STD_THREADS (the tsan build,
// because ThreadSanitizer does not understand libgomp) the same interface runs on std::thread.
#pragma once
#include <cstdint>
#include <functional>

namespace cairn {

// How many threads a parallel_for started from this thread uses; at first the usable cores
// (affinity mask and OMP_NUM_THREADS respected). Plain I/O threads call set_thread_count(1) at birth.
int thread_count();
void set_thread_count(int count);

// Calls body(begin, end) over disjoint ranges that cover [0, count), each at least `grain` long but
// the last. Ranges depend on (count, grain, thread_count()) alone. The first exception of a range is
// thrown to the caller when all have ended. Nested calls run inline.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

// Fixed logical chunks for sums whose order must not depend on the number of threads: at most
// kLogicalChunks ranges that depend on `count` alone. body(chunk, begin, end).
constexpr int kLogicalChunks = 16;
void parallel_chunks(int64_t count, const std::function<void(int, int64_t, int64_t)>& body);

}  // namespace cairn
