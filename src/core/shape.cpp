// SPDX-License-Identifier: Apache-2.0
#include <cairn/shape.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

namespace cairn {

Shape::Shape(std::span<const int64_t> axes) : rank_(int(axes.size())) {
  if (axes.size() > kMaxRank)
    fail(ErrorCode::shape_mismatch,
         fmt::format("shape: got {} axes, expected at most {}", axes.size(), kMaxRank));
  std::ranges::copy(axes, axes_.begin());
}

Shape Shape::filled(int rank, int64_t value) {
  Shape shape;
  for (int i = 0; i < rank; ++i) shape.push_back(value);
  return shape;
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int64_t length : *this)
    if (__builtin_mul_overflow(n, length, &n))
      fail(ErrorCode::shape_mismatch, "shape: " + cairn::to_string(*this) + " has more than 2^63 elements");
  return n;
}

void Shape::push_back(int64_t length) { insert(rank_, length); }

void Shape::insert(int axis, int64_t length) {
  if (rank_ == kMaxRank)
    fail(ErrorCode::shape_mismatch, fmt::format("shape: got more than {0} axes, expected at most {0}", kMaxRank));
  std::copy_backward(axes_.begin() + axis, axes_.begin() + rank_, axes_.begin() + rank_ + 1);
  axes_[size_t(axis)] = length;
  ++rank_;
}

void Shape::erase(int axis) {
  std::copy(axes_.begin() + axis + 1, axes_.begin() + rank_, axes_.begin() + axis);
  axes_[size_t(--rank_)] = 0;
}

bool Shape::operator==(const Shape& other) const { return std::ranges::equal(span(), other.span()); }

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.span(), ",")); }

Shape dense_strides(const Shape& shape) {
  Shape strides = Shape::filled(shape.rank(), 1);
  for (int i = shape.rank() - 2; i >= 0; --i) strides[i] = strides[i + 1] * std::max<int64_t>(1, shape[i + 1]);
  return strides;
}

Shape broadcast(const Shape& a, const Shape& b) {
  Shape out = Shape::filled(std::max(a.rank(), b.rank()), 1);
  for (int i = 1; i <= out.rank(); ++i) {
    const int64_t x = i <= a.rank() ? a[a.rank() - i] : 1, y = i <= b.rank() ? b[b.rank() - i] : 1;
    if (x != y && x != 1 && y != 1)
      fail(ErrorCode::shape_mismatch,
           fmt::format("shapes {} and {} do not broadcast: axis {} has {} against {}", to_string(a),
                       to_string(b), out.rank() - i, x, y));
    out[out.rank() - i] = x == 1 ? y : x;
  }
  return out;
}

int normalize_axis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    fail(ErrorCode::invalid_argument,
         fmt::format("axis: got {}, expected {} … {} for {} axes", axis, -rank, rank - 1, rank));
  return int(axis < 0 ? axis + rank : axis);
}

std::string to_string(const TensorType& type) {
  return std::string(name(type.dtype)) + to_string(type.shape);
}

TensorType parse_tensor_type(std::string_view text) {
  const size_t open = text.find('[');
  if (open == std::string_view::npos || !text.ends_with(']'))
    fail(ErrorCode::parse, fmt::format("tensor type: got '{}', expected e.g. f32[2,3]", text));
  TensorType type{parse_dtype(text.substr(0, open)), {}};
  const char *at = text.data() + open + 1, *end = text.data() + text.size() - 1;
  while (at < end) {
    int64_t length = 0;
    const auto [next, error] = std::from_chars(at, end, length);
    if (error != std::errc{} || length < 0 || (next != end && *next != ','))
      fail(ErrorCode::parse, fmt::format("tensor type: got '{}', expected e.g. f32[2,3]", text));
    type.shape.push_back(length);
    at = next == end ? end : next + 1;
  }
  return type;
}

}  // namespace cairn
