// SPDX-License-Identifier: Apache-2.0
#include "convert/onnx.h"

#include <fmt/format.h>
#include <onnx/onnx_pb.h>

namespace cairn::onnx {

namespace pb = ::onnx;

int to_onnx(DType d) {
  switch (d) {
    case DType::f64: return pb::TensorProto::DOUBLE;
    case DType::f32: return pb::TensorProto::FLOAT;
    case DType::f16: return pb::TensorProto::FLOAT16;
    case DType::bf16: return pb::TensorProto::BFLOAT16;
    case DType::i64: return pb::TensorProto::INT64;
    case DType::i32: return pb::TensorProto::INT32;
    case DType::i16: return pb::TensorProto::INT16;
    case DType::i8: return pb::TensorProto::INT8;
    case DType::u8: return pb::TensorProto::UINT8;
    case DType::boolean: break;
  }
  return pb::TensorProto::BOOL;
}

DType from_onnx(int data_type, std::string_view what) {
  for (DType d : kAllDTypes)
    if (to_onnx(d) == data_type) return d;
  fail(ErrorCode::unsupported,
       fmt::format("onnx: {} has element type {}, which Cairn does not have", what,
                   pb::TensorProto::DataType_IsValid(data_type)
                       ? pb::TensorProto::DataType_Name(pb::TensorProto::DataType(data_type))
                       : std::to_string(data_type)));
}

void to_onnx(const Tensor& tensor, pb::TensorProto& proto) {
  const Tensor d = tensor.dense();
  proto.set_data_type(to_onnx(d.dtype()));
  for (int64_t n : d.shape()) proto.add_dims(n);
  proto.set_raw_data(d.bytes(), size_t(d.type().bytes()));
}

Tensor from_onnx(const pb::TensorProto& proto) {
  const std::string what = fmt::format("tensor '{}'", proto.name().substr(0, 200));
  const auto bad = [&](const std::string& why) { fail(ErrorCode::parse, fmt::format("onnx: {}: {}", what, why)); };
  if (proto.data_location() == pb::TensorProto::EXTERNAL || proto.external_data_size() > 0)
    fail(ErrorCode::unsupported, fmt::format("onnx: {} lies in another file", what), "Save the model as one file");
  if (proto.dims_size() > kMaxRank) bad(fmt::format("{} axes, expected at most {}", proto.dims_size(), kMaxRank));
  TensorType type{from_onnx(proto.data_type(), what), {}};
  int64_t count = 1;
  for (int64_t n : proto.dims()) {
    if (n < 0 || __builtin_mul_overflow(count, std::max<int64_t>(n, 1), &count) || count > (int64_t(1) << 40))
      bad("bad dimensions");
    type.shape.push_back(n);
  }
  const int64_t numel = type.shape.numel();
  if (proto.has_raw_data()) {
    if (int64_t(proto.raw_data().size()) != numel * int64_t(size_of(type.dtype)))
      bad(fmt::format("got {} bytes for {}", proto.raw_data().size(), to_string(type)));
    return Tensor::from_bytes(type, proto.raw_data().data(), proto.raw_data().size());
  }
  const auto fill = [&](const auto& field) {
    if (field.size() != numel) bad(fmt::format("got {} elements for {}", field.size(), to_string(type)));
    Tensor t = Tensor::uninitialized(type);
    visit_dtype(type.dtype, [&](auto tag) {
      using T = decltype(tag);
      auto* out = reinterpret_cast<T*>(t.mutable_bytes());
      for (int64_t i = 0; i < numel; ++i) {
        const auto v = field.Get(int(i));
        if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) out[i] = T{uint16_t(v)};  // bits, as int32
        else out[i] = T(v);
      }
    });
    return t;
  };
  switch (type.dtype) {
    case DType::f64: return fill(proto.double_data());
    case DType::f32: return fill(proto.float_data());
    case DType::i64: return fill(proto.int64_data());
    default: return fill(proto.int32_data());
  }
}

}  // namespace cairn::onnx
