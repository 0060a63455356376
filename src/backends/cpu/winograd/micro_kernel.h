// SPDX-License-Identifier: Apache-2.0
// The innermost loops of Winograd convolution, generated for this machine when first asked for:
// a few numbers times one or two vectors, summed over a depth, all sums in registers. (Compilers
// spill here and lose a fifth of the speed.)
#pragma once
#include <cstdint>

namespace cairn::cpu::winograd {

// The depth is input channels; every array counts vectors of L lanes, strides are in bytes:
//   m[v][row] = Σ_b Σ_l  v[b][row][l] · u[b L + l][v]
// v and m step by `stride` from block to block (a block of channels each); u is contiguous.
// Brings a quarter of as much memory as u takes from `next` on nearer to the core.
using Products = void (*)(const float* v, const float* u, float* m, int64_t blocks, int64_t stride,
                          const float* next);
// The depth is tiles, L to a block:
//   s[row][v] (+)= Σ_t  v[t][row] · z[v][t]
// z steps by `stride` from vector to vector; v[t] is the first of the rows within a vector.
using TileProducts = void (*)(const float* v, const float* z, float* s, int64_t blocks,
                              int64_t stride);

struct MicroKernels {
  int max_rows;                      // of `products`
  Products products[2][14];          // [vectors − 1][rows − 1]
  int tile_rows;                     // a part of the lanes
  TileProducts tile_products[2][2];  // [vectors − 1][add to what s holds?]
};
// For vectors of 8 lanes (AVX2 and FMA) or 16 (AVX-512). Thread-safe.
const MicroKernels& micro_kernels(int lanes);

}  // namespace cairn::cpu::winograd
