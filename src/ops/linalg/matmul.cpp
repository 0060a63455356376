// SPDX-License-Identifier: Apache-2.0
// Matrix product [..., m, k] × [..., k, n] → [..., m, n]; leading axes broadcast; either side may
// be given transposed. linear(x, w, b) is x wᵀ + b.
#include "ops/linalg/matmul.h"

#include "ops/catalog.h"
#include "ops/expect.h"
#include "ops/helpers.h"

namespace cairn {
namespace ops {
namespace {

struct Dims {
  int64_t m, k, n;
  Shape batch, batch_a, batch_b;
};

Shape leading(const Shape& s) { return Shape(s.span().first(size_t(s.rank() - 2))); }

Dims dims(const MatmulParams& p, Types in) {
  check_same_dtype(in, {"a", "b"});
  const Shape &a = in[0].shape, &b = in[1].shape;
  for (int i = 0; i < 2; ++i)
    if (in[size_t(i)].shape.rank() < 2)
      wrong_input(i ? "b" : "a", in[size_t(i)], "at least two axes");
  const int row_a = a.rank() - 2, row_b = b.rank() - 2;
  Dims d{a[row_a + p.transpose_a],
         a[row_a + !p.transpose_a],
         b[row_b + !p.transpose_b],
         {},
         leading(a),
         leading(b)};
  if (const int64_t k = b[row_b + p.transpose_b]; k != d.k)
    wrong_input("b", in[1],
                fmt::format("{} rather than {} along axis {} to match {} of input a", d.k, k,
                            row_b + p.transpose_b, to_string(in[0])));
  const TensorType batches[]{{in[0].dtype, d.batch_a}, {in[1].dtype, d.batch_b}};
  d.batch = broadcast_inputs(batches, {"a (leading axes)", "b (leading axes)"});
  return d;
}

std::string operand(const Shape& batch, const Shape& out, bool transposed, const char* row,
                    const char* column) {
  std::string names;
  for (int i = 0; i < batch.rank(); ++i) {
    const int axis = out.rank() - batch.rank() + i;
    names += batch[i] == 1 && out[axis] != 1 ? '1' : char('a' + axis);
    names += ' ';
  }
  return names + (transposed ? column : row) + " " + (transposed ? row : column);
}

// a[..., i, j] times b[..., j, l] with numbers in T.
template <class T>
void multiply(const Dims& d, const MatmulParams& p, const std::vector<T>& a,
              const std::vector<T>& b, std::vector<T>& y) {
  const BroadcastIndex at_a(d.batch_a, d.batch), at_b(d.batch_b, d.batch);
  const int64_t row_a = p.transpose_a ? 1 : d.k, col_a = p.transpose_a ? d.m : 1;
  const int64_t row_b = p.transpose_b ? 1 : d.n, col_b = p.transpose_b ? d.k : 1;
  for (int64_t batch = 0; batch < d.batch.numel(); ++batch) {
    const T *x = a.data() + at_a(batch) * d.m * d.k, *w = b.data() + at_b(batch) * d.k * d.n;
    T* out = y.data() + batch * d.m * d.n;
    for (int64_t i = 0; i < d.m; ++i)
      for (int64_t j = 0; j < d.k; ++j)
        for (int64_t l = 0; l < d.n; ++l) {
          if constexpr (std::is_floating_point_v<T>)
            out[i * d.n + l] += x[i * row_a + j * col_a] * w[j * row_b + l * col_b];
          else
            out[i * d.n + l] =
                T(uint64_t(out[i * d.n + l]) +
                  uint64_t(x[i * row_a + j * col_a]) * uint64_t(w[j * row_b + l * col_b]));
        }
  }
}

Grads gradient(const MatmulParams& p, const Saved& s, const Tensor& dy) {
  Tensor a = s.input(0), b = s.input(1), d = dy;
  const bool ta = p.transpose_a, tb = p.transpose_b;
  Grads g(2);
  if (s.needs(0)) {
    const Tensor da = ta ? matmul(b, d, tb, true) : matmul(d, b, false, !tb);
    g[0] = unbroadcast(da, a.shape());
  }
  if (s.needs(1)) {
    if (b.rank() == 2 && a.rank() > 2 &&
        !ta) {  // one product over all leading axes instead of a sum of products
      a = reshape(a, {a.numel() / std::max<int64_t>(1, a.shape().back()), a.shape().back()});
      d = reshape(d, {a.shape()[0], d.shape().back()});
    }
    const Tensor db = tb ? matmul(d, a, true, ta) : matmul(a, d, !ta, false);
    g[1] = unbroadcast(db, b.shape());
  }
  return g;
}

Tensor swapped(const Tensor& t, bool transposed) { return transposed ? transpose(t) : t; }

}  // namespace

extern const OpDef matmul_op = define(OpSpec<MatmulParams>{
    .name = "matmul",
    .inputs = {{"a", any_number}, {"b", any_number}},
    .outputs = {{"y"}},
    .infer =
        [](auto& p, Types in) {
          Dims d = dims(p, in);
          d.batch.push_back(d.m);
          d.batch.push_back(d.n);
          return TypeList{{in[0].dtype, d.batch}};
        },
    .factors =
        [](auto& p, Types in) {
          const Dims d = dims(p, in);
          return operand(d.batch_a, d.batch, p.transpose_a, "m", "k") + ", " +
                 operand(d.batch_b, d.batch, p.transpose_b, "k", "n") + " -> " +
                 operand(d.batch, d.batch, false, "m", "n");
        },
    .reference =
        [](auto& p, RefIn in, RefOut out) {
          const TensorType types[]{in[0].type, in[1].type};
          const Dims d = dims(p, types);
          if (in[0].is_float())
            multiply(d, p, in[0].f, in[1].f, out[0].f);
          else
            multiply(d, p, in[0].i, in[1].i, out[0].i);
        },
    .saves = {input(0), input(1)},
    .gradient = [](auto& p, const Saved& s,
                   std::span<const Tensor> dy) { return gradient(p, s, dy[0]); },
    .cost =
        [](auto& p, Types in, Types out) {
          return Cost{2.0 * double(out[0].numel()) * double(dims(p, in).k), traffic(in, out)};
        },
    .fusion = opaque("a matrix product; neighbours join it as prologue or epilogue"),
    .onnx =
        OnnxMapping<MatmulParams>{"MatMul", 13,
                                  [](auto& p, Types) {
                                    if (p.transpose_a || p.transpose_b)
                                      fail(ErrorCode::unsupported,
                                           "ONNX MatMul does not transpose; use the decomposition");
                                    return OnnxCall{};
                                  },
                                  [](const OnnxCall&, Types in) -> std::optional<MatmulParams> {
                                    for (const TensorType& t : in)
                                      if (t.shape.rank() < 2)
                                        return std::nullopt;  // a vector: reshape first
                                    return MatmulParams{};
                                  }},
    .samples = {{{f32({2, 3}), f32({3, 4})}},
                {{f32({2, 1, 5, 3}), f32({4, 7, 3})}, {.transpose_b = true}},
                {{f32({3, 2}), f32({5, 3, 1})}, {.transpose_a = true}},
                {{f32({2, 4, 3}), f32({5, 4})}, {.transpose_a = true, .transpose_b = true}},
                {{f32({2, 3, 4}), f32({4, 2})}},
                {{f32({2, 0}), f32({0, 3})}},
                {{i32({2, 3}, -4, 5), i32({3, 2}, -4, 5)}}},
    .decompose =
        [](auto& p, std::span<const Tensor> in) {
          return std::vector{matmul(swapped(in[0], p.transpose_a), swapped(in[1], p.transpose_b))};
        },
});

}  // namespace ops

Tensor matmul(const Arg& a, const Arg& b, bool transpose_a, bool transpose_b) {
  return apply1(ops::matmul_op, {a.tensor(), b.tensor()},
                ops::MatmulParams{transpose_a, transpose_b}, a.site());
}

Tensor linear(const Arg& x, const Arg& weight, const Tensor& bias) {
  const Tensor in = x.tensor(), w = weight.tensor();
  if (in.defined() && w.defined() &&
      (w.rank() != 2 || in.rank() < 1 || in.shape().back() != w.shape()[1]))
    fail(ErrorCode::shape_mismatch,
         fmt::format(
             "linear: input weight: got {}, expected [out, in] with the last axis of input x, {}",
             to_string(w.type()), to_string(in.type())));
  const CallSite site = x.site();
  Tensor y = in.defined() && in.rank() == 1
                 ? reshape(matmul(Arg(unsqueeze(in, 0), site.file, site.line), w, false, true),
                           {w.shape()[0]})
                 : matmul(Arg(in, site.file, site.line), w, false, true);
  return bias.defined() ? add(Arg(y, site.file, site.line), bias) : y;
}

}  // namespace cairn
