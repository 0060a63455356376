// SPDX-License-Identifier: Apache-2.0
#include "ops/reference.h"

#include "core/strided.h"

namespace cairn {

RefTensor empty_reference(const TensorType& type) {
  RefTensor t{type, {}, {}};
  if (t.is_float()) t.f.resize(size_t(type.numel()));
  else t.i.resize(size_t(type.numel()));
  return t;
}

RefTensor load_reference(const TensorType& type, const void* dense) {
  RefTensor t = empty_reference(type);
  visit_dtype(type.dtype, [&](auto tag) {
    auto* src = static_cast<const decltype(tag)*>(dense);
    for (size_t k = 0; k < t.f.size(); ++k) t.f[k] = load_as<double>(src[k]);
    for (size_t k = 0; k < t.i.size(); ++k) t.i[k] = load_as<int64_t>(src[k]);
  });
  return t;
}

void store_reference(const RefTensor& t, void* dense) {
  visit_dtype(t.type.dtype, [&](auto tag) {
    using T = decltype(tag);
    auto* dst = static_cast<T*>(dense);
    for (size_t k = 0; k < t.f.size(); ++k) dst[k] = store_as<T>(t.f[k]);
    for (size_t k = 0; k < t.i.size(); ++k) dst[k] = store_as<T>(t.i[k]);
  });
}

}  // namespace cairn
