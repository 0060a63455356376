// SPDX-License-Identifier: Apache-2.0
// The data report: counts that add up, the findings behind them, as JSON and as text.
#include <cairn/data.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace cairn::data {

std::string_view name(Bucket bucket) {
  switch (bucket) {
    case Bucket::used: return "used";
    case Bucket::repaired: return "repaired";
    case Bucket::skipped: return "skipped";
    case Bucket::failed: return "failed";
  }
  return "unknown";
}

void Report::add(Finding finding) {
  ++counts_[size_t(finding.bucket)];
  list(std::move(finding));
}

void Report::note(Finding finding) { list(std::move(finding)); }

void Report::list(Finding finding) {
  if (++kinds_[finding.kind] <= kMaxListed) findings_.push_back(std::move(finding));
}

void Report::merge(const Report& other) {
  for (size_t b = 0; b < counts_.size(); ++b) counts_[b] += other.counts_[b];
  std::map<std::string, int64_t> listed;
  for (const Finding& f : findings_) ++listed[f.kind];
  for (const Finding& f : other.findings_)
    if (++listed[f.kind] <= kMaxListed) findings_.push_back(f);
  for (const auto& [kind, count] : other.kinds_) kinds_[kind] += count;
}

int64_t Report::found() const {
  int64_t sum = 0;
  for (int64_t c : counts_) sum += c;
  return sum;
}

std::string Report::json() const {
  nlohmann::ordered_json out;
  out["found"] = found();
  for (Bucket b : {Bucket::used, Bucket::repaired, Bucket::skipped, Bucket::failed})
    out[std::string(name(b))] = count(b);
  out["kinds"] = kinds_;
  int64_t unlisted = -int64_t(findings_.size());
  for (const auto& [kind, count] : kinds_) unlisted += count;
  auto& records = out["records"] = nlohmann::ordered_json::array();
  for (const Finding& f : findings_) {
    nlohmann::ordered_json item{{"bucket", name(f.bucket)}, {"file", printable(f.file)}};
    if (f.line) item["line"] = f.line;
    item["kind"] = printable(f.kind);
    item["detail"] = printable(f.detail);
    item["action"] = printable(f.action);
    records.push_back(std::move(item));
  }
  out["unlisted"] = unlisted;
  return out.dump(2);
}

std::string Report::summary() const {
  std::string out = fmt::format("{} found: {} used, {} repaired, {} skipped, {} failed", found(),
                                count(Bucket::used), count(Bucket::repaired), count(Bucket::skipped),
                                count(Bucket::failed));
  for (const auto& [kind, count] : kinds_) {
    const auto first = std::find_if(findings_.begin(), findings_.end(), [&](auto& f) { return f.kind == kind; });
    if (first == findings_.end()) continue;
    out += fmt::format("\n  {} {} ({}): {}", count, kind, name(first->bucket), printable(first->file));
    if (first->line) out += fmt::format(":{}", first->line);
    out += fmt::format(": {}", printable(first->detail));
    if (count > 1) out += fmt::format(", and {} more", count - 1);
  }
  return out;
}

}  // namespace cairn::data
