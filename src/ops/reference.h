// SPDX-License-Identifier: Apache-2.0
// Between memory and the reference's view of a tensor (floats as double, integers as int64).
#pragma once
#include <cairn/extend/op.h>

namespace cairn {

RefTensor load_reference(const TensorType& type, const void* dense);
void store_reference(const RefTensor& tensor, void* dense);
RefTensor empty_reference(const TensorType& type);  // sized and zeroed

}  // namespace cairn
