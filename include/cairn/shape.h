// SPDX-License-Identifier: Apache-2.0
// Shapes: the lengths of a tensor's axes, outermost first, held in place (no allocation).
#pragma once
#include <cairn/dtype.h>

#include <initializer_list>
#include <span>
#include <string>

namespace cairn {

inline constexpr int kMaxRank = 8;

// A value type; also used for strides and axis lists. Rank 0 is a scalar with one element.
class CAIRN_API Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> axes) : Shape(std::span(axes.begin(), axes.size())) {}
  explicit Shape(std::span<const int64_t> axes);  // throws shape_mismatch beyond kMaxRank axes
  static Shape filled(int rank, int64_t value);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return axes_[size_t(axis)]; }  // 0 ≤ axis < rank
  int64_t& operator[](int axis) { return axes_[size_t(axis)]; }
  int64_t back() const { return axes_[size_t(rank_ - 1)]; }
  const int64_t* begin() const { return axes_.data(); }
  const int64_t* end() const { return axes_.data() + rank_; }
  std::span<const int64_t> span() const { return {axes_.data(), size_t(rank_)}; }
  int64_t numel() const;  // the product; 1 for a scalar
  void push_back(int64_t length);
  void insert(int axis, int64_t length);
  void erase(int axis);
  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxRank> axes_{};
  int rank_ = 0;
};

CAIRN_API std::string to_string(const Shape& shape);  // "[2,3]"

// Row-major strides in elements.
CAIRN_API Shape dense_strides(const Shape& shape);

// NumPy broadcasting of two shapes; throws shape_mismatch naming both.
CAIRN_API Shape broadcast(const Shape& a, const Shape& b);

// Turns an axis that may count from the end (-1) into 0 … rank-1; throws invalid_argument.
CAIRN_API int normalize_axis(int64_t axis, int rank);

// What is known of a tensor before it has a value.
struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  int64_t numel() const { return shape.numel(); }
  int64_t bytes() const { return shape.numel() * int64_t(size_of(dtype)); }
  bool operator==(const TensorType&) const = default;
};
CAIRN_API std::string to_string(const TensorType& type);  // "f32[2,3]"
CAIRN_API TensorType parse_tensor_type(std::string_view text);

}  // namespace cairn
