// SPDX-License-Identifier: Apache-2.0
// The transforms around Winograd's products: pictures, filters and gradients to 36 numbers a tile
// and channel, and back. Channels are innermost, a vector of them at a time, so that no transform
// moves anything between lanes.
//
// With the points 0, 1, −1, 2, −2, ∞ (Lavin and Gray) everything is one of three matrices or its
// transpose, applied to the columns and then to the rows of a small square:
//   V = Bᵀ x B   6 × 6 pixels       U = G w Gᵀ   3 × 3 filter     y = Aᵀ M A    M = Σ_c U V
//   Z = A dy Aᵀ  4 × 4 gradients                                  dw = Gᵀ S G   S = Σ_tiles V Z
#pragma once
#include <cstdint>

namespace cairn::cpu::winograd {

inline constexpr int kTile = 4, kPoints = 36;

// How tiles lie on the pictures: tile (i, j) makes the outputs from (4i, 4j) on, from 6 × 6 inputs
// from (4i − top, 4j − left) on. Inputs outside the picture are zeros, outputs outside are dropped.
// Tiles are counted row by row, picture by picture.
struct Tiling {
  struct Size {
    int64_t height, width;
  };
  int64_t pictures;
  Size in, out;
  int64_t top, left;  // padding before the picture

  int64_t down() const { return (out.height + kTile - 1) / kTile; }
  int64_t across() const { return (out.width + kTile - 1) / kTile; }
  int64_t tiles() const { return pictures * down() * across(); }
};
struct TileRange {
  int64_t first, count;
};

// One block of channels of nChw8c pictures (or nChw16c): where its first picture starts and how
// many elements there are from picture to picture. Null data: there is none.
template <class T>
struct Channels {
  T* data;
  int64_t step;
};
// The 36 numbers of a tile lie `plane` elements apart, tiles follow each other.
template <class T>
struct Points {
  T* data;
  int64_t plane;
};

// What happens to y before it is stored.
struct Epilogue {
  enum Activation { clamp, leaky, silu } activation = clamp;
  float low, high;  // clamp to these
  float slope;      // leaky: below zero
};

struct Transforms {
  int lanes;  // channels in a block
  // x → V and dy → Z
  void (*input)(const Tiling&, TileRange, Channels<const float> x, Points<float> v);
  void (*gradient)(const Tiling&, TileRange, Channels<const float> dy, Points<float> z);
  // M → y = activation(sums + bias + residual)
  void (*output)(const Tiling&, TileRange, Points<const float> m, const float* bias,
                 Channels<const float> residual, const Epilogue&, Channels<float> y);
  // A block of weights [3][3][lanes in][lanes out] → U, row by row (`step` elements apart). For the
  // gradient of the input rows are output channels and the filter is turned round.
  void (*filter)(const float* w, Points<float> u, int64_t step);
  void (*turned_filter)(const float* w, Points<float> u, int64_t step);
  // S, row by row → a block of the gradient of the weights
  void (*filter_gradient)(Points<const float> s, int64_t step, float* dw);
};
// Those for Highway's choice of instruction set.
const Transforms& transforms();

}  // namespace cairn::cpu::winograd
