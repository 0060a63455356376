// SPDX-License-Identifier: Apache-2.0
#include "core/share.h"

#include <mutex>
#include <string_view>
#include <unordered_map>

namespace cairn {

std::shared_ptr<Storage> share_equal(std::shared_ptr<Storage> mine) {
  static std::mutex mutex;
  static std::unordered_multimap<size_t, std::weak_ptr<Storage>> known;
  const auto bytes = [](const Storage& s) {
    return std::string_view(reinterpret_cast<const char*>(s.data()), s.bytes());
  };
  const size_t key = std::hash<std::string_view>()(bytes(*mine));
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  for (auto [it, end] = known.equal_range(key); it != end; ++it)
    if (auto other = it->second.lock(); other && bytes(*other) == bytes(*mine)) return other;
  known.emplace(key, mine);
  return mine;
}

}  // namespace cairn
