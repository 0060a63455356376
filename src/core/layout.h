// SPDX-License-Identifier: Apache-2.0
// How the elements of a tensor lie in memory inside a compiled plan: row-major, or blocked so that kernels
// read whole vectors of channels. Eager tensors are strided (cairn/tensor.h); blocked layouts never leave a plan.
#pragma once
#include <cairn/tensor.h>

#include <string>

namespace cairn {

// Outer axes in `order` (row-major over them), each divided by its blocks; then the inner blocks, outermost
// first. oneDNN's letters name one: dense "abcd", nChw8c "aBcd8b", OIhw8i8o "ABcd8b8a", Ohwi8o "Acdb8a".
// A blocked axis whose length is no multiple is padded with zeros. Rank is fixed (the letters name the axes).
class Layout {
 public:
  struct Block {
    int8_t axis;
    int16_t size;
    bool operator==(const Block&) const = default;
  };
  Layout() = default;  // dense, of any rank
  static Layout dense() { return {}; }
  // Reads the letters; throws parse.
  static Layout parse(std::string_view tag);

  bool is_dense() const { return order_.empty(); }
  std::string tag(int rank) const;
  std::span<const int8_t> order() const { return order_; }  // empty when dense
  std::span<const Block> blocks() const { return blocks_; }
  // Elements in memory, padding included.
  int64_t elements(const Shape& shape) const;
  int64_t bytes(const TensorType& type) const { return elements(type.shape) * int64_t(size_of(type.dtype)); }
  // True when no axis is padded: then elementwise kernels may treat it as a flat array.
  bool exact(const Shape& shape) const { return elements(shape) == shape.numel(); }
  // Where an element lies, in elements. For tests, references and rare paths.
  int64_t offset(const Shape& shape, std::span<const int64_t> index) const;
  bool operator==(const Layout&) const = default;

 private:
  std::vector<int8_t> order_;
  std::vector<Block> blocks_;
};

// Copies between any two layouts, element by element; padding becomes zero. The slow, sure way.
void reorder_reference(const TensorType& type, const Layout& from, const void* src, const Layout& to, void* dst);

}  // namespace cairn
