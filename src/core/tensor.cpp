// SPDX-License-Identifier: Apache-2.0
#include <cairn/tensor.h>
#include <fmt/format.h>

#include <atomic>

#include "core/strided.h"

namespace cairn {

struct Tensor::Impl {
  TensorType type;
  Shape strides;
  int64_t offset = 0;
  std::shared_ptr<Storage> storage;
  std::shared_ptr<Symbol> symbol;
  uint64_t id = next_id();

  static uint64_t next_id() {
    static std::atomic<uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
  }
};

namespace {

void check_shape(const Shape& shape) {
  for (int64_t length : shape)
    if (length < 0)
      fail(ErrorCode::shape_mismatch, "tensor: shape " + to_string(shape) + " has a negative length");
}

}  // namespace

Tensor Tensor::uninitialized(const TensorType& type) {
  check_shape(type.shape);
  auto impl = std::make_shared<Impl>();
  impl->type = type;
  impl->strides = dense_strides(type.shape);
  impl->storage = Storage::allocate(size_t(type.bytes()));
  return Tensor(std::move(impl));
}

Tensor Tensor::from_bytes(const TensorType& type, const void* bytes, size_t size) {
  check_shape(type.shape);
  if (size != size_t(type.bytes()))
    fail(ErrorCode::shape_mismatch,
         fmt::format("tensor: {} needs {} bytes, got {}", cairn::to_string(type), type.bytes(), size));
  Tensor t = uninitialized(type);
  if (size != 0) std::memcpy(t.mutable_bytes(), bytes, size);
  return t;
}

Tensor Tensor::full(const TensorType& type, double value) {
  Tensor t = uninitialized(type);
  visit_dtype(type.dtype, [&](auto tag) {
    using T = decltype(tag);
    std::fill_n(reinterpret_cast<T*>(t.mutable_bytes()), t.numel(), store_as<T>(value));
  });
  return t;
}

Tensor Tensor::view(std::shared_ptr<Storage> storage, const TensorType& type, const Shape& strides,
                    int64_t offset) {
  check_shape(type.shape);
  CAIRN_CHECK(strides.rank() == type.shape.rank(), "view: strides and shape differ in rank");
  int64_t low = offset, high = offset;
  for (int i = 0; i < strides.rank(); ++i) {
    const int64_t span = (type.shape[i] - 1) * strides[i];
    (span < 0 ? low : high) += span;
  }
  const auto capacity = int64_t(storage->bytes() / size_of(type.dtype));
  CAIRN_CHECK(type.numel() == 0 || (low >= 0 && high < capacity), "view: outside its storage");
  auto impl = std::make_shared<Impl>();
  impl->type = type;
  impl->strides = strides;
  impl->offset = offset;
  impl->storage = std::move(storage);
  return Tensor(std::move(impl));
}

Tensor Tensor::symbolic(const TensorType& type, std::shared_ptr<Symbol> symbol) {
  auto impl = std::make_shared<Impl>();
  impl->type = type;
  impl->symbol = std::move(symbol);
  return Tensor(std::move(impl));
}

const TensorType& Tensor::type() const {
  if (!impl_) fail(ErrorCode::invalid_argument, "tensor: used before it was given a value");
  return impl_->type;
}

const std::shared_ptr<Symbol>& Tensor::symbol() const {
  static const std::shared_ptr<Symbol> none;
  return impl_ ? impl_->symbol : none;
}

uint64_t Tensor::id() const { return impl_ ? impl_->id : 0; }

const Tensor::Impl& Tensor::concrete(const char* doing) const {
  if (!impl_) fail(ErrorCode::invalid_argument, std::string("tensor: ") + doing + " of an undefined tensor");
  if (impl_->symbol)
    fail(ErrorCode::invalid_argument,
         fmt::format("trace: {} of a traced value, {}, which has no value yet", doing,
                     impl_->symbol->describe()),
         "Use select, cond or while_loop for choices that depend on data, or run with --mode eager");
  return *impl_;
}

void Tensor::check_dtype(DType wanted) const {
  if (dtype() != wanted)
    fail(ErrorCode::dtype_unsupported, fmt::format("tensor: read as {}, but it is {}", name(wanted),
                                                   cairn::to_string(type())));
}

const Shape& Tensor::strides() const { return concrete("asking the strides").strides; }

bool Tensor::is_dense() const {
  const Impl& impl = concrete("asking the layout");
  int64_t expected = 1;
  for (int i = impl.strides.rank() - 1; i >= 0; --i) {
    if (impl.type.shape[i] == 1) continue;
    if (impl.strides[i] != expected) return impl.type.numel() == 0;
    expected *= impl.type.shape[i];
  }
  return true;
}

const std::shared_ptr<Storage>& Tensor::storage() const { return concrete("reading").storage; }
int64_t Tensor::offset() const { return concrete("reading").offset; }

const std::byte* Tensor::bytes() const {
  const Impl& impl = concrete("reading");
  return impl.storage->data() + impl.offset * int64_t(size_of(impl.type.dtype));
}

std::byte* Tensor::mutable_bytes() {
  const Impl& impl = concrete("writing");
  return impl.storage->data() + impl.offset * int64_t(size_of(impl.type.dtype));
}

Tensor Tensor::dense() const {
  if (is_dense()) return *this;
  Tensor out = uninitialized(type());
  visit_dtype(dtype(), [&](auto tag) {
    using T = decltype(tag);
    const T* src = reinterpret_cast<const T*>(bytes());
    T* dst = reinterpret_cast<T*>(out.mutable_bytes());
    const int64_t length = rank() ? shape().back() : 1, step = rank() ? strides().back() : 1;
    for_each_row<1>(shape(), {strides()}, [&](const auto& offset) {
      for (int64_t i = 0; i < length; ++i) *dst++ = src[offset[0] + i * step];
    });
  });
  return out;
}

double Tensor::item() const {
  concrete("reading");
  if (numel() != 1)
    fail(ErrorCode::shape_mismatch, "item: got " + cairn::to_string(type()) + ", expected one element");
  return visit_dtype(dtype(), [&](auto tag) {
    return load_as<double>(*reinterpret_cast<const decltype(tag)*>(bytes()));
  });
}

std::vector<double> Tensor::to_doubles() const {
  const Tensor d = dense();
  std::vector<double> out(size_t(d.numel()));
  visit_dtype(dtype(), [&](auto tag) {
    auto* src = reinterpret_cast<const decltype(tag)*>(d.bytes());
    for (size_t i = 0; i < out.size(); ++i) out[i] = load_as<double>(src[i]);
  });
  return out;
}

std::string Tensor::to_string(int64_t limit) const {
  if (!defined()) return "undefined";
  std::string text = cairn::to_string(type());
  if (is_symbolic()) return text + " (traced)";
  text += " {";
  const auto doubles = to_doubles();
  for (size_t i = 0; i < doubles.size() && int64_t(i) < limit; ++i)
    text += fmt::format("{}{:.6g}", i ? ", " : "", doubles[i]);
  return text + (int64_t(doubles.size()) > limit ? ", …}" : "}");
}

}  // namespace cairn
