// SPDX-License-Identifier: Apache-2.0
// Matrix products through oneDNN, in f32, dense: transposes and broadcasts are strides.
#include <fmt/format.h>

#include "backends/cpu/backend.h"
#include "backends/cpu/onednn.h"
#include "ops/catalog.h"
#include "ops/linalg/matmul.h"

namespace cairn::cpu {
namespace {

using dnnl::memory;

// a [batch …, m, k] × b [batch …, k, n] → y [batch …, m, n], all with one number of axes.
struct Product {
  memory::dims a, b, y;                       // lengths
  memory::dims a_stride, b_stride, y_stride;  // elements
};

// Lengths and strides of one operand, with leading axes of length one to make up `rank`.
void place(const Shape& shape, bool transposed, size_t rank, memory::dims& lengths,
           memory::dims& strides) {
  const Shape dense = dense_strides(shape);
  lengths.assign(rank - size_t(shape.rank()), 1);
  strides.assign(rank - size_t(shape.rank()), shape.numel());
  lengths.insert(lengths.end(), shape.begin(), shape.end());
  strides.insert(strides.end(), dense.begin(), dense.end());
  if (transposed) {
    std::swap(lengths[rank - 2], lengths[rank - 1]);
    std::swap(strides[rank - 2], strides[rank - 1]);
  }
}

Product read(const KernelRequest& r) {
  const auto& p = r.params.as<ops::MatmulParams>();
  Shape a = r.in[0].shape, b = r.in[1].shape, y = r.out[0].shape;
  if (b.rank() == 2 && !p.transpose_a) {  // one product over all leading axes
    a = {a.numel() / a.back(), a.back()};
    y = {y.numel() / y.back(), y.back()};
  }
  Product q;
  const auto rank = size_t(y.rank());
  place(a, p.transpose_a, rank, q.a, q.a_stride);
  place(b, p.transpose_b, rank, q.b, q.b_stride);
  place(y, false, rank, q.y, q.y_stride);
  return q;
}

memory::desc desc(memory::dims lengths, memory::dims strides) {
  return {std::move(lengths), memory::data_type::f32, std::move(strides)};
}

std::unique_ptr<onednn::Task> task(const KernelRequest& r) {
  const Product q = read(r);
  const size_t row = q.y.size() - 2;
  return std::make_unique<onednn::Task>(r.threads, r.deterministic, q.y[row], [&](int64_t rows) {
    memory::dims a = q.a, y = q.y;
    a[row] = y[row] = rows;
    const memory::desc ad = desc(a, q.a_stride), bd = desc(q.b, q.b_stride),
                       yd = desc(y, q.y_stride);
    return onednn::make_call(
        dnnl::matmul::primitive_desc(onednn::engine(), ad, bd, yd, onednn::attributes()),
        {{DNNL_ARG_SRC, 0, ad, q.a_stride[row] * 4},
         {DNNL_ARG_WEIGHTS, 1, bd},
         {DNNL_ARG_DST, ~0, yd, q.y_stride[row] * 4}});
  });
}

OfferResult offer(const KernelRequest& r) {
  if (r.in[0].dtype != DType::f32)
    return Refusal{fmt::format("takes f32, got {}", name(r.in[0].dtype))};
  KernelOffer offer{std::vector<Layout>(2), std::vector<Layout>(1)};
  if (any_empty(r)) return offer;
  try {
    offer.workspace_bytes = task(r)->workspace_bytes();
    return offer;
  } catch (const dnnl::error& e) {
    return Refusal{onednn::reason(e)};
  }
}

std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer&) {
  if (any_empty(r)) return zeros(r.out);
  return task(r);
}

}  // namespace

const Kernel onednn_matmul_kernel{&ops::matmul_op, "onednn.matmul", offer, prepare};

}  // namespace cairn::cpu
