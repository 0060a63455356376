// SPDX-License-Identifier: Apache-2.0
// bytes → u8 picture: a whole JPEG or PNG, upright, or a refusal with its reason.
#pragma once
#include <cairn/data.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::data {

// An 8-bit picture: rows top to bottom, pixels (H, W, C) without padding, C = 1 (grey) or 3 (RGB).
class Picture {
 public:
  static constexpr size_t kSlack = 16;  // bytes behind the last row that vector code may touch
  Picture() = default;
  Picture(int width, int height, int channels);  // pixels not initialised
  int width() const { return width_; }
  int height() const { return height_; }
  int channels() const { return channels_; }
  Size size() const { return {width_, height_}; }
  size_t stride() const { return size_t(width_) * size_t(channels_); }
  size_t bytes() const { return stride() * size_t(height_); }
  uint8_t* row(int y) { return pixels_.get() + size_t(y) * stride(); }
  const uint8_t* row(int y) const { return pixels_.get() + size_t(y) * stride(); }
  Picture copy() const;

 private:
  int width_ = 0, height_ = 0, channels_ = 0;
  std::unique_ptr<uint8_t[]> pixels_;
};

enum class Color : uint8_t { stored, grey, rgb };

// Grey ↔ RGB by the rule of Transform; itself when nothing is to be done.
Picture convert(Picture picture, Color color);

// Upright again, from EXIF orientation 1 … 8.
Picture apply_orientation(Picture picture, int orientation);

// Something about a picture that could be mended, or that is worth a word. `kind` is one of:
// extraneous, restart, no_end, alpha, cmyk, sixteen_bit, suffix, warning.
struct Note {
  std::string kind, detail;
};

struct Decoded {
  Picture picture;
  std::string_view format;  // "JPEG" or "PNG"
  int orientation = 1;      // as it was stored; the picture is upright
  bool grey = false;        // stored without colour
  std::vector<Note> notes;  // empty: used as it stands
};

// Why a picture cannot be used. `kind` is one of: missing, unreadable, empty, not_a_picture,
// unsupported, too_large, truncated, corrupt.
class DecodeError : public Error {
 public:
  DecodeError(std::string kind, std::string message, std::string hint = {});
  const std::string& kind() const { return kind_; }

 private:
  std::string kind_;
};

// The content decides about the format. JPEG: baseline, progressive, arithmetic; grey, YCbCr, RGB, CMYK
// and YCCK; full precision, so equal to libjpeg-turbo's defaults. PNG: every kind; alpha dropped, 16 bits
// rounded to 8 (v / 257), both with a note. Missing pixels are a refusal, never grey ones.
Decoded decode(std::string_view bytes, Color color = Color::stored, const Limits& limits = {});

// The same for a file; also notes a suffix that names another format. `content` gets a hash of the bytes.
Decoded decode_file(const std::string& path, Color color = Color::stored, const Limits& limits = {},
                    uint64_t* content = nullptr);

// What the first bytes look like: "JPEG", "PNG", "GIF", "BMP", "WebP", "TIFF", "HEIF", "JPEG 2000" or "".
std::string_view sniff(std::string_view bytes);

std::string encode_png(const Picture& picture, int level = 6);      // level 0 … 9
std::string encode_jpeg(const Picture& picture, int quality = 90);  // quality 1 … 100, 4:2:0

}  // namespace cairn::data
