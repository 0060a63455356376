// SPDX-License-Identifier: Apache-2.0
#include "data/decode.h"

#include <fmt/format.h>
#include <jpeglib.h>
#include <jerror.h>
#include <libexif/exif-data.h>
#include <png.h>

#include <algorithm>
#include <cctype>
#include <csetjmp>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/random.h"

// libjpeg and libpng report errors by jumping. The rule here: every C call sits in a Trap::run() body
// that has only trivial locals, and whatever owns memory lives outside of it.
namespace cairn::data {
namespace {

ErrorCode code_of(std::string_view kind) {
  if (kind == "missing") return ErrorCode::not_found;
  if (kind == "unreadable") return ErrorCode::io;
  return kind == "unsupported" || kind == "too_large" ? ErrorCode::unsupported : ErrorCode::parse;
}

[[noreturn]] void refuse(std::string kind, std::string message, std::string hint = {}) {
  throw DecodeError(std::move(kind), "decode: " + std::move(message), std::move(hint));
}

struct Trap {
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = "";
  template <class F>
  bool run(F&& body) {
    if (setjmp(jump)) return false;
    body();
    return true;
  }
  [[noreturn]] void leave() { std::longjmp(jump, 1); }
};

// `memory` is what decoding holds at its peak.
void check_limits(int64_t width, int64_t height, int64_t memory, const Limits& limits) {
  if (width * height > limits.max_pixels)
    refuse("too_large",
           fmt::format("the header says {} x {} = {} pixels, more than the limit of {}", width, height,
                       width * height, limits.max_pixels),
           "Shrink the picture. A program may raise Limits::max_pixels");
  if (memory > limits.max_memory)
    refuse("too_large",
           fmt::format("{} x {} pixels need {} bytes to decode, more than the limit of {}", width, height,
                       memory, limits.max_memory),
           "Raise max_memory, or store the picture smaller or not progressive");
}

// `tiff` is the content of an EXIF block behind its "Exif\0\0". 1 when it says nothing usable.
int orientation_of(std::string_view tiff) {
  static constexpr std::string_view kHead("Exif\0\0", 6);
  if (tiff.size() < 8 || tiff.size() > (1u << 20)) return 1;
  const std::string block = std::string(kHead) + std::string(tiff);
  std::unique_ptr<ExifData, void (*)(ExifData*)> data(exif_data_new(), exif_data_unref);
  if (!data) return 1;
  exif_data_unset_option(data.get(), EXIF_DATA_OPTION_FOLLOW_SPECIFICATION);
  exif_data_set_option(data.get(), EXIF_DATA_OPTION_DONT_CHANGE_MAKER_NOTE);
  exif_data_load_data(data.get(), reinterpret_cast<const unsigned char*>(block.data()), unsigned(block.size()));
  const ExifEntry* entry = exif_content_get_entry(data->ifd[EXIF_IFD_0], EXIF_TAG_ORIENTATION);
  if (!entry || entry->format != EXIF_FORMAT_SHORT || entry->components < 1 || entry->size < 2) return 1;
  const int value = exif_get_short(entry->data, exif_data_get_byte_order(data.get()));
  return value >= 1 && value <= 8 ? value : 1;
}

// --- JPEG ---

class JpegReader {
 public:
  JpegReader(std::string_view bytes, const Limits& limits) : bytes_(bytes), limits_(limits) {
    jpeg_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr c) {
      c->err->format_message(c, self(c).trap_.message);
      self(c).trap_.leave();
    };
    errors_.emit_message = [](j_common_ptr c, int level) {
      if (level < 0) self(c).warn();
    };
    errors_.output_message = [](j_common_ptr) {};
    jpeg_.client_data = this;
    if (!trap_.run([&] { jpeg_create_decompress(&jpeg_); })) refuse("corrupt", trap_.message);
    source_.init_source = [](j_decompress_ptr) {};
    source_.term_source = [](j_decompress_ptr) {};
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.fill_input_buffer = [](j_decompress_ptr c) -> boolean {
      self(c).pretend_end();
      return TRUE;
    };
    source_.skip_input_data = [](j_decompress_ptr c, long count) {
      if (count <= 0) return;
      if (size_t(count) > c->src->bytes_in_buffer) return self(c).pretend_end();
      c->src->next_input_byte += count;
      c->src->bytes_in_buffer -= size_t(count);
    };
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source_.bytes_in_buffer = bytes.size();
    jpeg_.src = &source_;
  }
  JpegReader(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }

  Decoded read() {
    run([&] {
      jpeg_save_markers(&jpeg_, JPEG_APP0 + 1, 0xFFFF);
      jpeg_read_header(&jpeg_, TRUE);
    });
    Decoded out;
    out.format = "JPEG";
    const bool cmyk = jpeg_.num_components == 4;
    if (jpeg_.num_components == 2 || jpeg_.num_components > 4)
      refuse("unsupported", fmt::format("a JPEG of {} components", jpeg_.num_components));
    for (auto* m = jpeg_.marker_list; m; m = m->next)
      if (m->data_length > 6 && std::memcmp(m->data, "Exif\0\0", 6) == 0) {
        out.orientation = orientation_of({reinterpret_cast<char*>(m->data) + 6, m->data_length - 6});
        break;
      }
    out.grey = jpeg_.num_components == 1;
    const int64_t width = jpeg_.image_width, height = jpeg_.image_height;
    const bool scans = jpeg_has_multiple_scans(&jpeg_);
    const int64_t picture = width * height * (out.grey ? 1 : 3);
    check_limits(width, height,
                 picture * (out.orientation > 4 ? 2 : 1) +
                     (scans ? width * height * 2 * jpeg_.num_components : 0), limits_);
    jpeg_.mem->max_memory_to_use = long(limits_.max_memory);
    jpeg_.out_color_space = out.grey ? JCS_GRAYSCALE : cmyk ? JCS_CMYK : JCS_RGB;
    if (scans) absorb_scans();
    out.picture = Picture(int(width), int(height), out.grey ? 1 : 3);
    if (!scans) run([&] { jpeg_start_decompress(&jpeg_); });
    std::vector<JSAMPLE> line(cmyk ? size_t(width) * 4 : 0);
    const auto lines = [&] {
      if (jpeg_.buffered_image) jpeg_start_output(&jpeg_, jpeg_.input_scan_number);
      while (jpeg_.output_scanline < jpeg_.output_height) {
        uint8_t* row = out.picture.row(int(jpeg_.output_scanline));
        JSAMPROW target = cmyk ? line.data() : row;
        jpeg_read_scanlines(&jpeg_, &target, 1);
        if (cmyk) from_cmyk(line.data(), row, int(width));
      }
    };
    run(lines);
    if (damage_[0]) fail_damaged();
    if (scans && ended_) check_scans_complete();
    // The picture is whole; what is wrong behind it costs no pixel.
    if (!trap_.run([&] {
          if (jpeg_.buffered_image) jpeg_finish_output(&jpeg_);
          jpeg_finish_decompress(&jpeg_);
        }))
      out.notes.push_back({"warning", trap_.message});
    if (ended_) {
      if (jpeg_.arith_code) fail_incomplete();  // its decoder cannot tell that bits are missing
      out.notes.push_back({"no_end", "the end marker is missing; every pixel is there"});
    }
    if (extraneous_[0]) out.notes.push_back({"extraneous", extraneous_});
    if (restart_[0]) out.notes.push_back({"restart", restart_});
    if (cmyk) out.notes.push_back({"cmyk", "CMYK turned into RGB without a colour profile"});
    return out;
  }

 private:
  static JpegReader& self(j_common_ptr c) { return *static_cast<JpegReader*>(c->client_data); }
  static JpegReader& self(j_decompress_ptr c) { return *static_cast<JpegReader*>(c->client_data); }

  template <class F>
  void run(F&& body) {
    if (trap_.run(body)) return;
    if (ended_) refuse("truncated", fmt::format("the JPEG ends after {} bytes, within its header or tables", bytes_.size()));
    const int code = errors_.msg_code;
    if (code == JERR_OUT_OF_MEMORY || code == JERR_NO_BACKING_STORE)
      refuse("too_large", fmt::format("decoding the JPEG needs more than the limit of {} bytes", limits_.max_memory),
             "Raise max_memory");
    if (code == JERR_IMAGE_TOO_BIG) refuse("too_large", fmt::format("the JPEG is too large: {}", trap_.message));
    const bool foreign = code == JERR_SOF_UNSUPPORTED || code == JERR_BAD_PRECISION || code == JERR_CONVERSION_NOTIMPL;
    refuse(foreign ? "unsupported" : "corrupt", fmt::format("not a usable JPEG: {}", trap_.message));
  }

  // The file is over: libjpeg gets an end marker, and we remember.
  void pretend_end() {
    static constexpr JOCTET kEnd[] = {0xFF, JPEG_EOI};
    ended_ = true;
    source_.next_input_byte = kEnd;
    source_.bytes_in_buffer = 2;
  }

  // Called inside libjpeg: sorts warnings into mended and fatal, keeps the first of each.
  void warn() {
    const auto keep = [&](char* to) {
      if (!to[0]) jpeg_.err->format_message(reinterpret_cast<j_common_ptr>(&jpeg_), to);
    };
    ++errors_.num_warnings;
    switch (errors_.msg_code) {
      case JWRN_EXTRANEOUS_DATA: return keep(extraneous_);
      case JWRN_MUST_RESYNC: return keep(restart_);
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
      case JWRN_ARITH_BAD_CODE:
        if (!damage_[0]) damaged_row_ = int(jpeg_.output_scanline);
        return keep(damage_);
      default: return;  // about markers that carry no pixels
    }
  }

  // Reads all scans of a progressive or non-interleaved file, noting which components came.
  void absorb_scans() {
    constexpr int kMaxScans = 200;
    jpeg_.buffered_image = TRUE;
    int scans = 0;
    bool seen[MAX_COMPONENTS] = {};
    const auto note = [&] {
      for (int i = 0; i < jpeg_.comps_in_scan; ++i) seen[jpeg_.cur_comp_info[i]->component_index] = true;
    };
    run([&] {
      jpeg_start_decompress(&jpeg_);
      note();
      for (int got = JPEG_SUSPENDED; got != JPEG_REACHED_EOI && scans <= kMaxScans;) {
        got = jpeg_consume_input(&jpeg_);
        if (got == JPEG_REACHED_SOS) note(), ++scans;
      }
    });
    if (scans > kMaxScans) refuse("unsupported", fmt::format("the JPEG has more than {} scans", kMaxScans));
    for (int i = 0; i < jpeg_.num_components; ++i)
      if (!seen[i]) refuse(ended_ ? "truncated" : "corrupt", "the JPEG lacks one of its colour components");
  }

  // Without an end marker a progressive file may lack whole scans, which libjpeg would not mind.
  void check_scans_complete() {
    if (!jpeg_.coef_bits) return;  // not progressive: absorb_scans() saw every component
    for (int c = 0; c < jpeg_.num_components; ++c)
      for (int k = 0; k < DCTSIZE2; ++k)
        if (jpeg_.coef_bits[c][k] != 0) fail_incomplete();
  }

  [[noreturn]] void fail_incomplete() {
    refuse("truncated", fmt::format("the JPEG ends after {} bytes, before its last scan", bytes_.size()));
  }

  [[noreturn]] void fail_damaged() {
    const auto where = jpeg_.buffered_image ? std::string("within a scan")
                                            : fmt::format("near row {} of {}", damaged_row_, jpeg_.output_height);
    if (!ended_) refuse("corrupt", fmt::format("{}, {}", damage_, where));
    refuse("truncated", fmt::format("the JPEG ends after {} bytes, {}", bytes_.size(), where));
  }

  // Adobe's convention (inverted inks), which is the only one in use.
  static void from_cmyk(const JSAMPLE* in, uint8_t* out, int width) {
    const auto product = [](int a, int b) {
      const int t = a * b + 128;
      return uint8_t(((t >> 8) + t) >> 8);  // a * b / 255, rounded
    };
    for (int x = 0; x < width; ++x, in += 4, out += 3)
      for (int c = 0; c < 3; ++c) out[c] = product(in[c], in[3]);
  }

  std::string_view bytes_;
  const Limits& limits_;
  Trap trap_;
  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  bool ended_ = false;
  int damaged_row_ = 0;
  char damage_[JMSG_LENGTH_MAX] = "", extraneous_[JMSG_LENGTH_MAX] = "", restart_[JMSG_LENGTH_MAX] = "";
};

// --- PNG ---

class PngReader {
 public:
  PngReader(std::string_view bytes, const Limits& limits) : bytes_(bytes), limits_(limits) {
    png_ = png_create_read_struct(
        PNG_LIBPNG_VER_STRING, this,
        [](png_structp p, png_const_charp text) {
          auto& me = *static_cast<PngReader*>(png_get_error_ptr(p));
          copy_text(me.trap_.message, text);
          me.trap_.leave();
        },
        [](png_structp p, png_const_charp text) { static_cast<PngReader*>(png_get_error_ptr(p))->warn(text); });
    if (png_) info_ = png_create_info_struct(png_);
    if (!info_) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw std::bad_alloc();
    }
  }
  PngReader(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  Decoded read() {
    run([&] {
      png_set_read_fn(png_, this, [](png_structp p, png_bytep out, size_t count) {
        auto& me = *static_cast<PngReader*>(png_get_io_ptr(p));
        if (count > me.bytes_.size() - me.at_) {
          me.ended_ = true;
          png_error(p, "the file ends early");
        }
        std::memcpy(out, me.bytes_.data() + me.at_, count);
        me.at_ += count;
      });
      png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // ours are checked below
      // Texts and profiles can unpack to gigabytes, and none of them changes a pixel here.
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      static constexpr png_byte kKeep[] = "tRNS\0eXIf";
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_AS_DEFAULT, kKeep, 2);
      png_read_info(png_, info_);
    });
    const int64_t width = png_get_image_width(png_, info_), height = png_get_image_height(png_, info_);
    const int depth = png_get_bit_depth(png_, info_), type = png_get_color_type(png_, info_);
    Decoded out;
    out.format = "PNG";
    out.grey = !(type & PNG_COLOR_MASK_COLOR);
    const bool alpha = (type & PNG_COLOR_MASK_ALPHA) || png_get_valid(png_, info_, PNG_INFO_tRNS);
    const int channels = out.grey ? 1 : 3;
    check_limits(width, height, width * height * channels * 2, limits_);
    int passes = 1;
    run([&] {
      if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
      if (out.grey && depth < 8) png_set_expand_gray_1_2_4_to_8(png_);
      if (depth == 16) png_set_scale_16(png_);
      if (alpha) png_set_strip_alpha(png_);
      passes = png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
    out.picture = Picture(int(width), int(height), channels);
    CAIRN_CHECK(png_get_rowbytes(png_, info_) == out.picture.stride(), "PNG row size");
    run([&] {
      for (int pass = 0; pass < passes; ++pass)
        for (int y = 0; y < int(height); ++y) png_read_row(png_, out.picture.row(y), nullptr);
    });
    if (damage_[0]) refuse("corrupt", fmt::format("not a usable PNG: {}", damage_));
    if (!trap_.run([&] { png_read_end(png_, info_); }))
      out.notes.push_back({"no_end", fmt::format("every pixel is there, but behind them: {}", trap_.message)});
    if (damage_[0]) refuse("corrupt", fmt::format("not a usable PNG: {}", damage_));
    png_uint_32 size = 0;
    png_bytep exif = nullptr;
    if (png_get_eXIf_1(png_, info_, &size, &exif) && exif)
      out.orientation = orientation_of({reinterpret_cast<char*>(exif), size});
    if (extraneous_[0]) out.notes.push_back({"extraneous", extraneous_});
    if (alpha) out.notes.push_back({"alpha", "transparency dropped"});
    if (depth == 16) out.notes.push_back({"sixteen_bit", "16 bits rounded to 8 (value / 257)"});
    return out;
  }

 private:
  static void copy_text(char (&to)[JMSG_LENGTH_MAX], const char* from) {
    std::strncpy(to, from, sizeof to - 1);
    to[sizeof to - 1] = 0;
  }
  template <class F>
  void run(F&& body) {
    if (trap_.run(body)) return;
    if (ended_) refuse("truncated", fmt::format("the PNG ends after {} bytes, before its last row", bytes_.size()));
    refuse("corrupt", fmt::format("not a usable PNG: {}", trap_.message));
  }
  // Only warnings about pixel data matter; others are about chunks that we do not use.
  void warn(const char* text) {
    if (std::strncmp(text, "IDAT", 4) != 0) return;
    const bool more = std::strstr(text, "xtra") || std::strstr(text, "oo much");
    if (char(&to)[JMSG_LENGTH_MAX] = more ? extraneous_ : damage_; !to[0]) copy_text(to, text);
  }

  std::string_view bytes_;
  const Limits& limits_;
  Trap trap_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  size_t at_ = 0;
  bool ended_ = false;
  char damage_[JMSG_LENGTH_MAX] = "", extraneous_[JMSG_LENGTH_MAX] = "";
};

std::string_view format_of_suffix(const std::string& path) {
  std::string suffix = std::filesystem::path(path).extension().string();
  for (char& c : suffix) c = char(std::tolower(static_cast<unsigned char>(c)));
  if (suffix == ".jpg" || suffix == ".jpeg" || suffix == ".jpe" || suffix == ".jfif") return "JPEG";
  return suffix == ".png" ? "PNG" : "";
}

}  // namespace

DecodeError::DecodeError(std::string kind, std::string message, std::string hint)
    : Error(code_of(kind), std::move(message), std::move(hint)), kind_(std::move(kind)) {}

Picture::Picture(int width, int height, int channels)
    : width_(width), height_(height), channels_(channels) {
  CAIRN_CHECK(width > 0 && height > 0 && (channels == 1 || channels == 3), "a picture needs pixels");
  pixels_ = std::make_unique_for_overwrite<uint8_t[]>(bytes() + kSlack);
}

Picture Picture::copy() const {
  if (bytes() == 0) return {};
  Picture out(width_, height_, channels_);
  std::memcpy(out.row(0), row(0), bytes());
  return out;
}

Picture convert(Picture in, Color color) {
  const int channels = color == Color::grey ? 1 : 3;
  if (color == Color::stored || in.channels() == channels) return in;
  Picture out(in.width(), in.height(), channels);
  const size_t count = size_t(in.width()) * size_t(in.height());
  const uint8_t* from = in.row(0);
  uint8_t* to = out.row(0);
  if (channels == 1)
    for (size_t i = 0; i < count; ++i, from += 3)
      to[i] = uint8_t((19595u * from[0] + 38470u * from[1] + 7471u * from[2] + 32768u) >> 16);
  else
    for (size_t i = 0; i < count; ++i, to += 3) to[0] = to[1] = to[2] = from[i];
  return out;
}

Picture apply_orientation(Picture in, int orientation) {
  if (orientation <= 1 || orientation > 8) return in;
  const int w = in.width(), h = in.height(), c = in.channels();
  const bool turned = orientation > 4;
  // Where the upright picture's columns and rows come from: start and step in the stored one.
  const bool right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool down = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Picture out(turned ? h : w, turned ? w : h, c);
  for (int y = 0; y < out.height(); ++y) {
    uint8_t* to = out.row(y);
    for (int x = 0; x < out.width(); ++x, to += c) {
      const int sx = turned ? y : x, sy = turned ? x : y;
      const uint8_t* from = in.row(down ? h - 1 - sy : sy) + size_t(right ? w - 1 - sx : sx) * size_t(c);
      for (int k = 0; k < c; ++k) to[k] = from[k];
    }
  }
  return out;
}

std::string_view sniff(std::string_view b) {
  const auto at = [&](size_t offset, std::string_view magic) {
    return b.size() >= offset + magic.size() && b.substr(offset, magic.size()) == magic;
  };
  if (at(0, "\xFF\xD8")) return "JPEG";
  if (at(0, "\x89PNG\r\n\x1A\n")) return "PNG";
  if (at(0, "GIF8")) return "GIF";
  if (at(0, "BM")) return "BMP";
  if (at(0, "RIFF") && at(8, "WEBP")) return "WebP";
  if (at(0, std::string_view("II*\0", 4)) || at(0, std::string_view("MM\0*", 4))) return "TIFF";
  if (at(4, "ftyphei") || at(4, "ftypavif") || at(4, "ftypmif1")) return "HEIF";
  if (at(4, "jP  ") || at(0, "\xFF\x4F\xFF\x51")) return "JPEG 2000";
  return "";
}

Decoded decode(std::string_view bytes, Color color, const Limits& limits) {
  if (bytes.empty()) refuse("empty", "the file is empty");
  const std::string_view format = sniff(bytes);
  if (format.empty())
    refuse("not_a_picture", fmt::format("this is no picture: it begins with \"{}\"",
                                        printable(std::string(bytes.substr(0, 16)))));
  if (format != "JPEG" && format != "PNG")
    refuse("unsupported", fmt::format("{} pictures are not supported", format), "Convert it to PNG or JPEG");
  try {
    Decoded out = format == "JPEG" ? JpegReader(bytes, limits).read() : PngReader(bytes, limits).read();
    out.picture = convert(apply_orientation(std::move(out.picture), out.orientation), color);
    return out;
  } catch (const std::bad_alloc&) {
    refuse("too_large", "there is not enough memory to decode this picture");
  }
}

Decoded decode_file(const std::string& path, Color color, const Limits& limits, uint64_t* content) {
  std::string bytes;
  try {
    bytes = read_file(path, size_t(limits.max_file));
  } catch (const Error& e) {
    std::error_code ignored;
    const auto size = std::filesystem::file_size(path, ignored);
    if (e.code() == ErrorCode::not_found) throw DecodeError("missing", e.message());
    if (!ignored && int64_t(size) > limits.max_file) throw DecodeError("too_large", e.message(), "Raise max_file");
    throw DecodeError("unreadable", e.message());
  }
  Decoded out = decode(bytes, color, limits);
  if (content) *content = hash(bytes);
  if (auto named = format_of_suffix(path); !named.empty() && named != out.format)
    out.notes.push_back({"suffix", fmt::format("{} content under a {} suffix", out.format, named)});
  return out;
}

std::string encode_png(const Picture& picture, int level) {
  std::string bytes;
  Trap trap;
  png_structp png = png_create_write_struct(
      PNG_LIBPNG_VER_STRING, &trap,
      [](png_structp p, png_const_charp) { static_cast<Trap*>(png_get_error_ptr(p))->leave(); },
      [](png_structp, png_const_charp) {});
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  const bool done = info && trap.run([&] {
    png_set_write_fn(png, &bytes, [](png_structp p, png_bytep data, size_t size) {
      // An exception must not cross libpng; out of memory becomes its error.
      bool stored = true;
      try {
        static_cast<std::string*>(png_get_io_ptr(p))->append(reinterpret_cast<char*>(data), size);
      } catch (...) {
        stored = false;
      }
      if (!stored) png_error(p, "out of memory");
    }, nullptr);
    png_set_compression_level(png, level);
    png_set_IHDR(png, info, png_uint_32(picture.width()), png_uint_32(picture.height()), 8,
                 picture.channels() == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int y = 0; y < picture.height(); ++y) png_write_row(png, picture.row(y));
    png_write_end(png, info);
  });
  png_destroy_write_struct(&png, &info);
  if (!done) fail(ErrorCode::out_of_memory, "encode: the PNG could not be written");
  return bytes;
}

std::string encode_jpeg(const Picture& picture, int quality) {
  struct State {
    jpeg_compress_struct jpeg{};
    jpeg_error_mgr errors{};
    Trap trap;
    unsigned char* bytes = nullptr;
    unsigned long size = 0;
    ~State() {
      jpeg_destroy_compress(&jpeg);
      std::free(bytes);
    }
  } s;
  if (picture.width() > JPEG_MAX_DIMENSION || picture.height() > JPEG_MAX_DIMENSION)
    fail(ErrorCode::unsupported, fmt::format("encode: a JPEG side is at most {} pixels: got {} x {}",
                                             JPEG_MAX_DIMENSION, picture.width(), picture.height()));
  s.jpeg.err = jpeg_std_error(&s.errors);
  s.jpeg.client_data = &s.trap;
  s.errors.error_exit = [](j_common_ptr c) {
    auto& trap = *static_cast<Trap*>(c->client_data);
    c->err->format_message(c, trap.message);
    trap.leave();
  };
  s.errors.output_message = [](j_common_ptr) {};
  const bool done = s.trap.run([&] {
    jpeg_create_compress(&s.jpeg);
    jpeg_mem_dest(&s.jpeg, &s.bytes, &s.size);
    s.jpeg.image_width = JDIMENSION(picture.width());
    s.jpeg.image_height = JDIMENSION(picture.height());
    s.jpeg.input_components = picture.channels();
    s.jpeg.in_color_space = picture.channels() == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&s.jpeg);
    jpeg_set_quality(&s.jpeg, quality, TRUE);
    jpeg_start_compress(&s.jpeg, TRUE);
    while (s.jpeg.next_scanline < s.jpeg.image_height) {
      JSAMPROW row = const_cast<uint8_t*>(picture.row(int(s.jpeg.next_scanline)));
      jpeg_write_scanlines(&s.jpeg, &row, 1);
    }
    jpeg_finish_compress(&s.jpeg);
  });
  if (!done) fail(ErrorCode::internal, fmt::format("encode: libjpeg: {}", s.trap.message));
  return {reinterpret_cast<char*>(s.bytes), s.size};
}

}  // namespace cairn::data
