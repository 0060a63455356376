// SPDX-License-Identifier: Apache-2.0
#include "ops/helpers.h"

#include <algorithm>

#include "core/strided.h"
#include "ops/reference.h"

namespace cairn::ops {

namespace {
std::string input_name(std::initializer_list<const char*> names, size_t i) {
  return i < names.size() ? names.begin()[i] : std::to_string(i);
}
}  // namespace

void check_same_dtype(Types in, std::initializer_list<const char*> names) {
  for (size_t i = 1; i < in.size(); ++i)
    if (in[i].dtype != in[0].dtype)
      fail(ErrorCode::dtype_unsupported,
           fmt::format("input {}: got {}, expected {} as input {}", input_name(names, i), to_string(in[i]),
                       name(in[0].dtype), input_name(names, 0)),
           "Convert one side with cast(x, dtype)");
}

Shape broadcast_inputs(Types in, std::initializer_list<const char*> names) {
  Shape shape = in[0].shape;
  for (size_t i = 1; i < in.size(); ++i) try {
      shape = broadcast(shape, in[i].shape);
    } catch (const Error& e) {
      fail(e.code(), fmt::format("input {}: got {}, expected a shape that broadcasts with {}", input_name(names, i),
                                 to_string(in[i]), to_string(shape)));
    }
  return shape;
}

OnnxMapping<NoParams> onnx_plain(std::string op_type, int since) {
  return {std::move(op_type), since, [](auto&, Types) { return OnnxCall{}; },
          [](const OnnxCall&, Types) { return std::optional(NoParams{}); }};
}

std::string axis_names(int rank, const std::vector<int>& whole) {
  std::string out;
  for (int i = 0; i < rank; ++i) {
    if (i) out += ' ';
    out += char('a' + i);
    for (int w : whole)
      if (w == i) out += '!';
  }
  return out;
}

std::string axis_names_with(int rank, int axis, const std::string& own) {
  std::string out;
  for (int i = 0; i < rank; ++i) out += (i ? " " : "") + (i == axis ? own : std::string(1, char('a' + i)));
  return out;
}

std::string factors_where(int rank, const std::function<bool(int)>& shared) {
  std::string from, to;
  for (int i = 0; i < rank; ++i) {
    from += shared(i) ? fmt::format("{} ", char('a' + i)) : fmt::format("x{}! ", i);
    to += shared(i) ? fmt::format(" {}", char('a' + i)) : fmt::format(" y{}!", i);
  }
  return from + "->" + to;
}

std::string broadcast_factors(Types in, const Shape& out) {
  std::string text;
  for (size_t k = 0; k < in.size(); ++k) {
    const Shape& s = in[k].shape;
    if (k) text += ", ";
    for (int i = 0; i < s.rank(); ++i) {
      const int axis = out.rank() - s.rank() + i;
      if (i) text += ' ';
      text += s[i] == 1 && out[axis] != 1 ? '1' : char('a' + axis);
    }
  }
  return text + " -> " + axis_names(out.rank());
}

double traffic(Types in, Types out) {
  double bytes = 0;
  for (const auto& t : in) bytes += double(t.bytes());
  for (const auto& t : out) bytes += double(t.bytes());
  return bytes;
}

Tensor unbroadcast(const Tensor& dy, const Shape& shape) {
  if (dy.shape() == shape) return dy;
  const int extra = dy.rank() - shape.rank();
  Axes axes;
  for (int i = 0; i < dy.rank(); ++i)
    if (i < extra || (shape[i - extra] == 1 && dy.shape()[i] != 1)) axes.push_back(i);
  const Tensor summed = axes.empty() ? dy : sum(dy, axes, Keep::yes);
  return extra > 0 || summed.shape() != shape ? reshape(summed, shape) : summed;
}

int64_t to_integer(double value, DType dtype) {
  return visit_dtype(dtype, [&](auto tag) -> int64_t {
    using T = decltype(tag);
    if constexpr (std::is_same_v<T, bool>) return value != 0;
    else if constexpr (std::is_integral_v<T>) return saturate<T>(value);
    else return saturate<int64_t>(value);
  });
}

Tensor scalar_of(double value, DType dtype) {
  RefTensor t{{dtype, {}}, {}, {}};
  if (t.is_float()) t.f = {value};
  else t.i = {to_integer(value, dtype)};
  Tensor out = Tensor::uninitialized(t.type);
  store_reference(t, out.mutable_bytes());
  return out;
}

void fill(RefTensor& t, double value) {
  std::fill(t.f.begin(), t.f.end(), value);
  std::fill(t.i.begin(), t.i.end(), to_integer(value, t.type.dtype));
}

BroadcastIndex::BroadcastIndex(const Shape& in, const Shape& out)
    : out_(out), in_strides_(Shape::filled(out.rank(), 0)) {
  const Shape dense = dense_strides(in);
  const int extra = out.rank() - in.rank();
  for (int i = 0; i < in.rank(); ++i) in_strides_[i + extra] = in[i] == 1 ? 0 : dense[i];
}

int64_t BroadcastIndex::operator()(int64_t k) const {
  int64_t index = 0;
  for (int i = out_.rank() - 1; i >= 0; --i) {
    index += (k % out_[i]) * in_strides_[i];
    k /= out_[i];
  }
  return index;
}

AxisView::AxisView(const Shape& shape, int axis) : outer(1), length(shape[axis]), inner(1) {
  for (int i = 0; i < axis; ++i) outer *= shape[i];
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
}

}  // namespace cairn::ops
