// SPDX-License-Identifier: Apache-2.0
#include "data/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/file.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/random.h"
#include "data/decode.h"

namespace cairn::data {

int worker_count(int wanted) {
  // Affinity masks count: under `taskset -c 0` there is one core.
  const int cores = std::max(1, int(std::thread::hardware_concurrency()));
  if (wanted < 0) return std::clamp(cores / 2, 1, 8);
  if (wanted > cores)
    log(LogLevel::warning, "data", fmt::format("{} workers asked for, {} started: there are {} cores", wanted, cores, cores));
  return std::min(wanted, cores);
}

void for_each_on_workers(int64_t count, int workers, const std::function<void(int64_t)>& body) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      for (int64_t i; (i = next++) < count;) body(i);
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      next = count;
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int t = 0; t < workers && t < count; ++t)
      threads.emplace_back([&] { set_thread_count(1), work(); });
  } catch (const std::system_error&) {  // as many as there are; this thread helps
  }
  if (int(threads.size()) < workers || workers == 0) work();
  for (auto& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

Finding failure_of(const Record& record, const Error& error) {
  const auto* decode = dynamic_cast<const DecodeError*>(&error);
  return {Bucket::failed, record.key, record.line, decode ? decode->kind() : std::string(name(error.code())),
          error.message(), "left out"};
}

namespace {

struct Outcome {
  std::vector<Note> notes;
  std::optional<Finding> failure;
  Size size;
  bool grey = false;
  uint64_t content = 0;
};

// Equal files in two parts leak; equal files under two labels contradict each other.
void note_duplicates(const std::vector<Record>& records, const std::vector<Outcome>& outcomes,
                     const std::vector<std::string>& classes, Report& report) {
  std::unordered_map<uint64_t, size_t> first;
  for (size_t i = 0; i < records.size(); ++i) {
    if (outcomes[i].failure) continue;
    const auto [at, fresh] = first.try_emplace(outcomes[i].content, i);
    if (fresh) continue;
    const Record &a = records[at->second], &b = records[i];
    if (a.part != b.part)
      report.note({Bucket::used, b.key, b.line, "leak",
                   fmt::format("the same file as {} in {}", printable(a.key), a.part), "used in both"});
    else if (a.label != b.label)
      report.note({Bucket::used, b.key, b.line, "same_picture_two_labels",
                   fmt::format("the same file as {} of class {}", printable(a.key), classes[size_t(a.label)]), "used as both"});
  }
}

}  // namespace

Checked Dataset::check(const CheckOptions& options) const {
  const auto& all = records();
  const Limits& limits = this->limits();
  std::vector<Outcome> outcomes(all.size());
  std::atomic<int64_t> done{0};
  for_each_on_workers(size(), worker_count(options.workers), [&](int64_t i) {
    const Record& record = all[size_t(i)];
    Outcome& o = outcomes[size_t(i)];
    try {
      Decoded d = decode_file(record.path, Color::stored, limits, options.duplicates ? &o.content : nullptr);
      o.notes = std::move(d.notes);
      o.size = d.picture.size();
      o.grey = d.grey;
    } catch (const Error& e) {
      o.failure = failure_of(record, e);
    }
    if (options.progress) options.progress(++done);
  });
  Checked out;
  out.report = listing();
  std::vector<Record> usable;
  int64_t grey = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const Outcome& o = outcomes[i];
    if (o.failure) {
      out.report.add(*o.failure);
      continue;
    }
    if (o.notes.empty()) out.report.add_used();
    for (const Note& note : o.notes) {  // the first counts the record, the others are listed
      Finding f{Bucket::repaired, all[i].key, all[i].line, note.kind, note.detail, "used"};
      &note == &o.notes.front() ? out.report.add(f) : out.report.note(f);
    }
    grey += o.grey;
    const bool first = usable.empty();
    out.smallest = first ? o.size : Size{std::min(out.smallest.width, o.size.width), std::min(out.smallest.height, o.size.height)};
    out.largest = Size{std::max(out.largest.width, o.size.width), std::max(out.largest.height, o.size.height)};
    usable.push_back(all[i]);
  }
  if (usable.empty())
    fail(ErrorCode::invalid_argument, "data: none of the pictures can be used: " + out.report.summary(),
         "The findings say what is wrong with each file");
  if (options.duplicates) note_duplicates(all, outcomes, classes(), out.report);
  out.grey = grey == int64_t(usable.size());
  if (grey > 0 && !out.grey) {
    for (size_t i = 0; i < all.size(); ++i)
      if (!outcomes[i].failure && outcomes[i].grey)
        out.report.note({Bucket::used, all[i].key, all[i].line, "mixed_channels",
                         fmt::format("grey, while {} of {} pictures have colour", int64_t(usable.size()) - grey, usable.size()),
                         "read as the transform says: rgb repeats grey, grey mixes rgb"});
  }
  out.usable = Dataset(std::move(usable), classes(), out.report, limits).map(transform());
  return out;
}

}  // namespace cairn::data
