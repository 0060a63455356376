// SPDX-License-Identifier: Apache-2.0
#include "ops/catalog.h"

#include <cairn/ops.h>

#include <mutex>
#include <unordered_map>

namespace cairn {
namespace {

struct Catalogue {
  std::vector<const OpDef*> list;
  std::unordered_map<std::string_view, const OpDef*> by_name;
  std::mutex mutex;

  Catalogue() {
#define CAIRN_OP(name) add(ops::name##_op);
#include "ops/catalog.inc"
#undef CAIRN_OP
  }
  void add(const OpDef& op) {
    if (!by_name.emplace(op.name, &op).second)
      fail(ErrorCode::invalid_argument, "catalogue: operator '" + op.name + "' is there already");
    list.push_back(&op);
  }
  static Catalogue& instance() {
    static Catalogue catalogue;
    return catalogue;
  }
};

}  // namespace

const OpDef* find_op(std::string_view name) {
  auto& c = Catalogue::instance();
  std::lock_guard lock(c.mutex);
  const auto it = c.by_name.find(name);
  return it == c.by_name.end() ? nullptr : it->second;
}

std::span<const OpDef* const> all_ops() { return Catalogue::instance().list; }

void register_op(const OpDef& op) {
  auto& c = Catalogue::instance();
  std::lock_guard lock(c.mutex);
  c.add(op);
}

}  // namespace cairn
