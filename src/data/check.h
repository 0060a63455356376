// SPDX-License-Identifier: Apache-2.0
// The check before training: decodes every picture once, in parallel, and tells which can be used.
#pragma once
#include <cairn/data.h>

#include <functional>

namespace cairn::data {

// How many loading threads a wish comes to: -1 picks, and never more than the usable cores (with a note
// in the log when cut down); 0 stays 0.
int worker_count(int wanted);

// Calls body(i) for every i in [0, count) from `workers` plain threads (0: from this one), in no set
// order. The first exception is thrown to the caller when all have ended.
void for_each_on_workers(int64_t count, int workers, const std::function<void(int64_t)>& body);

// A finding about a record that could not be used, from the exception that says so.
Finding failure_of(const Record& record, const Error& error);

}  // namespace cairn::data
