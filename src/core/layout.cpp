// SPDX-License-Identifier: Apache-2.0
#include "core/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace cairn {

Layout Layout::parse(std::string_view tag) {
  const auto bad = [&] {
    fail(ErrorCode::parse, fmt::format("layout: got '{}', expected letters such as abcd or aBcd8b", tag));
  };
  Layout layout;
  size_t at = 0;
  bool dense = true;
  for (; at < tag.size() && std::isalpha(static_cast<unsigned char>(tag[at])); ++at) {
    const int axis = std::tolower(static_cast<unsigned char>(tag[at])) - 'a';
    if (axis >= kMaxRank || std::ranges::count(layout.order_, int8_t(axis))) bad();
    dense = dense && axis == int(at);
    layout.order_.push_back(int8_t(axis));
  }
  while (at < tag.size()) {
    int size = 0;
    for (; at < tag.size() && std::isdigit(static_cast<unsigned char>(tag[at])) && size < 1000; ++at)
      size = size * 10 + (tag[at] - '0');
    if (size < 2 || at == tag.size()) bad();
    const int axis = tag[at++] - 'a';
    if (axis < 0 || !std::ranges::count(layout.order_, int8_t(axis))) bad();
    layout.blocks_.push_back({int8_t(axis), int16_t(size)});
  }
  if (layout.order_.empty()) bad();
  if (dense && layout.blocks_.empty()) return {};
  return layout;
}

std::string Layout::tag(int rank) const {
  std::string text;
  for (int i = 0; i < rank; ++i) {
    const int axis = is_dense() ? i : order_[size_t(i)];
    bool blocked = false;
    for (const Block& b : blocks_) blocked = blocked || b.axis == axis;
    text += char((blocked ? 'A' : 'a') + axis);
  }
  for (const Block& b : blocks_) text += fmt::format("{}{}", b.size, char('a' + b.axis));
  return text;
}

namespace {
std::array<int64_t, kMaxRank> block_products(std::span<const Layout::Block> blocks) {
  std::array<int64_t, kMaxRank> product;
  product.fill(1);
  for (const auto& b : blocks) product[size_t(b.axis)] *= b.size;
  return product;
}
}  // namespace

int64_t Layout::elements(const Shape& shape) const {
  if (is_dense()) return shape.numel();
  CAIRN_CHECK(int(order_.size()) == shape.rank(), "layout and shape differ in rank");
  const auto block = block_products(blocks_);
  int64_t n = 1;
  for (int i = 0; i < shape.rank(); ++i) n *= (shape[i] + block[size_t(i)] - 1) / block[size_t(i)] * block[size_t(i)];
  return n;
}

int64_t Layout::offset(const Shape& shape, std::span<const int64_t> index) const {
  int64_t at = 0;
  if (is_dense()) {
    for (int i = 0; i < shape.rank(); ++i) at = at * shape[i] + index[size_t(i)];
    return at;
  }
  const auto block = block_products(blocks_);
  for (int8_t axis : order_) {
    const int64_t b = block[size_t(axis)];
    at = at * ((shape[axis] + b - 1) / b) + index[size_t(axis)] / b;
  }
  auto left = block;  // blocks of an axis split its inner index from the outermost
  for (const Block& b : blocks_) {
    const auto axis = size_t(b.axis);
    const int64_t inner = index[axis] % left[axis];
    left[axis] /= b.size;
    at = at * b.size + inner / left[axis];
  }
  return at;
}

void reorder_reference(const TensorType& type, const Layout& from, const void* src, const Layout& to, void* dst) {
  const size_t size = size_of(type.dtype);
  if (!to.exact(type.shape)) std::memset(dst, 0, size_t(to.bytes(type)));
  std::array<int64_t, kMaxRank> index{};
  const int rank = type.shape.rank();
  const std::span<const int64_t> at(index.data(), size_t(rank));
  for (int64_t n = type.numel(); n > 0; --n) {
    std::memcpy(static_cast<std::byte*>(dst) + size_t(to.offset(type.shape, at)) * size,
                static_cast<const std::byte*>(src) + size_t(from.offset(type.shape, at)) * size, size);
    for (int i = rank - 1; i >= 0 && ++index[size_t(i)] == type.shape[i]; --i) index[size_t(i)] = 0;
  }
}

}  // namespace cairn
