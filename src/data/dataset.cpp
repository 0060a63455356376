// SPDX-License-Identifier: Apache-2.0
// Data sets: records with class names, their split, and the way into a loader.
#include <cairn/data.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "data/loader.h"
#include "data/source.h"
#include "data/transform.h"

namespace cairn::data {

struct Dataset::State {
  std::vector<Record> records;
  std::vector<std::string> classes;
  Report listing;
  Limits limits;
};

namespace {

// How many of each cell go to training: shares rounded so that they add up to `total` (largest remainders).
std::vector<int64_t> apportion(const std::vector<int64_t>& cells, double share, int64_t total) {
  std::vector<int64_t> out(cells.size());
  std::vector<size_t> order(cells.size());
  int64_t given = 0;
  for (size_t i = 0; i < cells.size(); ++i) {
    order[i] = i;
    given += out[i] = int64_t(std::floor(double(cells[i]) * share));
  }
  const auto rest = [&](size_t i) { return double(cells[i]) * share - std::floor(double(cells[i]) * share); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rest(a) > rest(b); });
  for (size_t k = 0; given < total; k = (k + 1) % order.size())
    if (out[order[k]] < cells[order[k]]) ++out[order[k]], ++given;
  for (size_t k = order.size(); given > total; k = k ? k : order.size())
    if (out[order[--k]] > 0) --out[order[k]], --given;
  return out;
}

}  // namespace

Dataset::Dataset(std::vector<Record> records, std::vector<std::string> classes, Report listing, Limits limits) {
  for (const Record& r : records)
    if (r.label < 0 || r.label >= int64_t(classes.size()))
      fail(ErrorCode::invalid_argument, fmt::format("data: {}: label {}, but there are {} classes", printable(r.key), r.label,
                                                    classes.size()));
  state_ = std::make_shared<const State>(State{std::move(records), std::move(classes), std::move(listing), limits});
}

namespace {
const std::vector<Record> kNoRecords;
const std::vector<std::string> kNoClasses;
const Report kNoReport;
const Limits kLimits;
}  // namespace

const std::vector<Record>& Dataset::records() const { return state_ ? state_->records : kNoRecords; }
const std::vector<std::string>& Dataset::classes() const { return state_ ? state_->classes : kNoClasses; }
const Report& Dataset::listing() const { return state_ ? state_->listing : kNoReport; }
const Limits& Dataset::limits() const { return state_ ? state_->limits : kLimits; }

std::vector<int64_t> Dataset::class_counts() const {
  std::vector<int64_t> out(classes().size());
  for (const Record& r : records()) ++out[size_t(r.label)];
  return out;
}

std::vector<std::string> Dataset::parts() const {
  std::vector<std::string> out;
  for (const char* part : {"train", "val", "test"})
    if (std::any_of(records().begin(), records().end(), [&](auto& r) { return r.part == part; })) out.push_back(part);
  return out;
}

Dataset Dataset::part(std::string_view name) const {
  std::vector<Record> out;
  for (const Record& r : records())
    if (r.part == name) out.push_back(r);
  if (out.empty())
    fail(ErrorCode::not_found, fmt::format("data: there is no part \"{}\" with pictures; there is: {}", name,
                                           parts().empty() ? "no split" : fmt::format("{}", fmt::join(parts(), ", "))));
  return Dataset(std::move(out), classes(), listing(), limits()).map(transform_);
}

Split Dataset::split(const SplitOptions& options) const {
  if (const auto found = parts(); found.size() > 1) {
    const bool test = std::count(found.begin(), found.end(), "test") > 0;
    log(LogLevel::info, "data", "the data came split into train and test: that split is kept");
    return {part("train"), part(test ? "test" : "val")};
  }
  if (!(options.train > 0 && options.train < 1))
    fail(ErrorCode::invalid_argument, fmt::format("data: split: train is {}, expected a share between 0 and 1", options.train));
  // Each record draws a number from the seed and its own key; the lowest numbers of a cell train.
  constexpr uint64_t kSplit = hash("split");
  struct Draw {
    uint64_t number;
    size_t record;
  };
  std::map<int64_t, std::map<std::string, std::vector<Draw>>> cells;  // label → stratum → draws
  const auto& all = records();
  for (size_t i = 0; i < all.size(); ++i)
    cells[all[i].label][options.strata ? all[i].stratum : ""].push_back(
        {mix(mix(options.seed, kSplit), hash(all[i].key)), i});
  std::vector<uint8_t> trains(all.size());
  for (auto& [label, strata] : cells) {
    std::vector<int64_t> counts;
    int64_t total = 0;
    for (auto& [stratum, draws] : strata) counts.push_back(int64_t(draws.size())), total += counts.back();
    int64_t wanted = std::llround(double(total) * options.train);
    if (total > 1) wanted = std::clamp<int64_t>(wanted, 1, total - 1);
    const auto shares = apportion(counts, options.train, wanted);
    size_t cell = 0;
    for (auto& [stratum, draws] : strata) {
      std::sort(draws.begin(), draws.end(), [&](const Draw& a, const Draw& b) {
        return a.number != b.number ? a.number < b.number : all[a.record].key < all[b.record].key;
      });
      for (int64_t k = 0; k < shares[cell]; ++k) trains[draws[size_t(k)].record] = 1;
      ++cell;
    }
  }
  std::vector<Record> train, test;
  for (size_t i = 0; i < all.size(); ++i) (trains[i] ? train : test).push_back(all[i]);
  if (train.empty() || test.empty())
    fail(ErrorCode::invalid_argument, fmt::format("data: {} records cannot be split into {} and {}", all.size(), options.train,
                                                  1 - options.train));
  return {Dataset(std::move(train), classes(), listing(), limits()).map(transform_),
          Dataset(std::move(test), classes(), listing(), limits()).map(transform_)};
}

Dataset Dataset::map(Transform transform) const {
  Dataset out = *this;
  out.transform_ = std::move(transform);
  return out;
}

Loader Dataset::batch(int64_t size, const BatchOptions& options) const {
  return Loader(std::make_unique<Loader::Impl>(*this, size, options));
}

uint64_t Dataset::fingerprint() const {
  uint64_t h = uint64_t(size());
  for (const std::string& c : classes()) h = mix(h, hash(c));
  for (const Record& r : records()) {
    std::error_code error;  // a file that is not there has a size of -1
    h = mix(mix(mix(h, hash(r.key)), uint64_t(r.label)), uint64_t(std::filesystem::file_size(r.path, error)));
  }
  return h;
}

Dataset image_folder(const std::string& folder, const ListOptions& options) {
  Listing l = list_folder(folder, options);
  return Dataset(std::move(l.records), std::move(l.classes), std::move(l.report), options.limits);
}

Dataset csv_list(const std::string& file, const ListOptions& options) {
  Listing l = list_csv(file, options);
  return Dataset(std::move(l.records), std::move(l.classes), std::move(l.report), options.limits);
}

Dataset open(const std::string& path, const ListOptions& options) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ? csv_list(path, options) : image_folder(path, options);
}

namespace {
Tensor to_tensor(Decoded decoded, const Transform& transform) {
  const Transform eval = transform.eval();
  const Picture p = apply_fixed(eval, std::move(decoded.picture));
  Tensor out = Tensor::uninitialized({DType::f32, {1, p.channels(), p.height(), p.width()}});
  write_planes(eval, p, out.mutable_data<float>());
  return out;
}
}  // namespace

Tensor load_picture(const std::string& path, const Transform& transform, const Limits& limits) {
  try {
    return to_tensor(decode_file(path, transform.plan().color, limits), transform);
  } catch (Error& e) {
    e.add_frame(printable(path));
    throw;
  }
}

Tensor decode_picture(std::string_view bytes, const Transform& transform, const Limits& limits) {
  return to_tensor(decode(bytes, transform.plan().color, limits), transform);
}

}  // namespace cairn::data
