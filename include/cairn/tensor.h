// SPDX-License-Identifier: Apache-2.0
// Tensors: immutable values over shared storage. Model code is ordinary C++ on these.
#pragma once
#include <cairn/shape.h>

#include <functional>
#include <memory>
#include <vector>

namespace cairn {

// Memory behind tensors: 64-byte aligned, from a caching allocator, freed by the last owner.
// Thread-safe to share; the bytes are written only before a tensor is handed out.
class CAIRN_API Storage {
 public:
  static std::shared_ptr<Storage> allocate(size_t bytes);  // throws out_of_memory, naming the largest holders
  // Memory that someone else owns; `release` runs when the last tensor over it goes.
  static std::shared_ptr<Storage> borrow(void* data, size_t bytes, std::function<void()> release);
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  Storage(std::byte* data, size_t bytes, std::function<void()> release);
  std::byte* data_;
  size_t bytes_;
  std::function<void()> release_;  // empty: from the caching allocator
};

// What stands for a value that does not exist yet: a trace derives from this (ir/trace.h).
class CAIRN_API Symbol {
 public:
  virtual ~Symbol() = default;
  virtual std::string describe() const = 0;  // for the error when somebody reads it
};

// A handle to an immutable tensor: cheap to copy, safe to share between threads. Three states: undefined
// (default), concrete (dtype, shape, strides over storage), symbolic (has a type, but no value: it was
// made under a trace, and reading it is an error). Views share storage with what they view.
class CAIRN_API Tensor {
 public:
  Tensor() = default;

  // --- making ---
  // Copies `values` (row-major). throws shape_mismatch when the counts differ.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape) {
    return from_bytes({dtype_of<T>, shape}, values.data(), values.size_bytes());
  }
  template <class T>
  static Tensor from(std::initializer_list<T> values, const Shape& shape) {
    return from(std::span<const T>(values.begin(), values.size()), shape);
  }
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span<const T>(values), shape);
  }
  static Tensor from_bytes(const TensorType& type, const void* bytes, size_t size);
  static Tensor full(const TensorType& type, double value);  // integers: value truncated towards zero
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32) { return full({dtype, shape}, 0); }
  static Tensor ones(const Shape& shape, DType dtype = DType::f32) { return full({dtype, shape}, 1); }
  static Tensor scalar(double value, DType dtype = DType::f32) { return full({dtype, {}}, value); }
  // Memory to fill through mutable_data() before anyone else sees the tensor.
  static Tensor uninitialized(const TensorType& type);
  // Over existing storage; strides and offset in elements, all within the storage (checked).
  static Tensor view(std::shared_ptr<Storage> storage, const TensorType& type, const Shape& strides,
                     int64_t offset = 0);
  static Tensor symbolic(const TensorType& type, std::shared_ptr<Symbol> symbol);

  // --- asking ---
  bool defined() const { return bool(impl_); }
  explicit operator bool() const { return defined(); }
  const TensorType& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int rank() const { return shape().rank(); }
  int64_t numel() const { return shape().numel(); }
  const std::shared_ptr<Symbol>& symbol() const;  // null when concrete
  bool is_symbolic() const { return bool(symbol()); }
  uint64_t id() const;  // unique for each value made in this process

  // --- reading (concrete only: reading a traced value throws invalid_argument, saying where) ---
  const Shape& strides() const;  // in elements
  bool is_dense() const;         // row-major without holes
  const std::shared_ptr<Storage>& storage() const;
  int64_t offset() const;
  const std::byte* bytes() const;  // address of element (0, …, 0)
  template <class T>
  const T* data() const {          // throws dtype_unsupported when T is not the dtype
    check_dtype(dtype_of<T>);
    return reinterpret_cast<const T*>(bytes());
  }
  std::byte* mutable_bytes();  // only for the maker, before the tensor is shared
  template <class T>
  T* mutable_data() {
    check_dtype(dtype_of<T>);
    return reinterpret_cast<T*>(mutable_bytes());
  }
  Tensor dense() const;          // itself when dense, else a row-major copy
  double item() const;           // the only element, as double; throws shape_mismatch otherwise
  template <class T>
  std::vector<T> values() const {  // row-major copy; T must be the dtype (bool: use uint8_t)
    const Tensor d = dense();
    if constexpr (std::is_same_v<T, uint8_t>) {
      if (dtype() == DType::boolean) {
        auto* p = reinterpret_cast<const uint8_t*>(d.bytes());
        return {p, p + d.numel()};
      }
    }
    return {d.data<T>(), d.data<T>() + d.numel()};
  }
  std::vector<double> to_doubles() const;  // row-major, every dtype
  std::string to_string(int64_t limit = 64) const;

 private:
  struct Impl;
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const Impl& concrete(const char* doing) const;
  void check_dtype(DType wanted) const;
  std::shared_ptr<Impl> impl_;
};

// Bytes that live tensors hold now, the most they ever held, and what the allocator keeps for reuse.
struct MemoryStats { size_t in_use = 0, peak = 0, cached = 0; };
CAIRN_API MemoryStats memory_stats();
CAIRN_API void release_cached_memory();
// Refuses to hold more than this many bytes in tensors (0: the memory of the machine or container): out_of_memory
// instead of a kill.
CAIRN_API void set_memory_limit(size_t bytes);

}  // namespace cairn
