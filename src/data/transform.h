// SPDX-License-Identifier: Apache-2.0
// picture → normalised tensor: f32 planes, by a recipe that training and serving share.
#pragma once
#include <cairn/data.h>

#include <cstddef>
#include <variant>

#include "base/random.h"
#include "data/decode.h"

namespace cairn::data {

// --- the pixel operations, which define what the steps of a recipe do ---

enum class Filter : uint8_t { bilinear, bicubic };

struct Box {
  int x = 0, y = 0, width = 0, height = 0;
};

// The part `from` of a picture, resized by convolution with the filter stretched to the scale
// (antialiased), pixel centres at halves, horizontally and then vertically with 8 bits between.
// Bit for bit Pillow's resize; equal sizes copy.
Picture resize(const Picture& picture, Box from, Size to, Filter filter);
Picture crop(const Picture& picture, Box box);
Picture turn(const Picture& picture, int quarters);  // clockwise, by 90 degrees each
void flip_horizontal(Picture& picture);
void flip_vertical(Picture& picture);

// x' = scale · shear · rotation of x about the centre, then moved by (dx, dy) pixels; bilinear, border repeated.
struct AffineMap {
  double degrees = 0, scale = 1, shear_degrees = 0, dx = 0, dy = 0;
};
Picture warp(const Picture& picture, const AffineMap& map);

// Brightness, then contrast (about the mean grey), then saturation; 1 changes nothing.
void adjust_color(Picture& picture, double brightness, double contrast, double saturation);

// --- recipes ---

struct ResizeStep { Size to; Filter filter; };
struct ResizeShortStep { int shorter; Filter filter; };
struct CenterCropStep { Size to; };
struct RandomResizedCropStep { Size to; double area[2]; double ratio[2]; Filter filter; };
struct FlipStep { bool horizontal; double probability; };
struct QuarterTurnStep {};
struct AffineStep { double degrees, translate, scale[2], shear; };
struct JitterStep { double brightness, contrast, saturation; };
using Step = std::variant<ResizeStep, ResizeShortStep, CenterCropStep, RandomResizedCropStep, FlipStep,
                          QuarterTurnStep, AffineStep, JitterStep>;

struct Transform::Plan {
  std::string recipe;
  Color color = Color::rgb;
  std::vector<Step> steps;
  size_t fixed_steps = 0;            // how many leading steps draw no lots: their result may be cached
  std::vector<double> mean, spread;  // one a channel
  bool normalized = false;
  std::vector<float> table;          // [channel][byte] → the number that byte becomes
};

// Which lots to draw: results depend on these three alone.
struct Draw {
  uint64_t seed = 0;
  int64_t epoch = 0, element = 0;
};

// Runs the leading steps that draw no lots; then the others; then writes (C, H, W) floats, of
// C·H·W = channels · output_size, to `out`. The picture has the transform's colour already.
Picture apply_fixed(const Transform& transform, Picture picture);
Picture apply_random(const Transform& transform, Picture picture, const Draw& draw);
void write_planes(const Transform& transform, const Picture& picture, float* out);

}  // namespace cairn::data
