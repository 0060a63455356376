// SPDX-License-Identifier: Apache-2.0
// graph + weights → ONNX, and back. What the writer and the reader share: element types and tensors.
#pragma once
#include <cairn/onnx.h>

#include <string_view>

namespace onnx {
class ModelProto;
class TensorProto;
}  // namespace onnx

namespace cairn::onnx {

inline constexpr int kOpset = 17, kIrVersion = 8;
inline constexpr int kOldestOpset = 13, kNewestOpset = 21;  // that the reader takes

int to_onnx(DType dtype);                                   // TensorProto::DataType
DType from_onnx(int data_type, std::string_view what);      // throws unsupported
void to_onnx(const Tensor& tensor, ::onnx::TensorProto& proto);
Tensor from_onnx(const ::onnx::TensorProto& proto);         // checks sizes; refuses external data

}  // namespace cairn::onnx
