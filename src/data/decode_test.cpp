// SPDX-License-Identifier: Apache-2.0
// Decoding: every way a picture is stored, and every way a file is broken.
#include "data/decode.h"

#include <jpeglib.h>
#include <png.h>

#include <cmath>
#include <functional>

#include "data/testing.h"

namespace cairn::data {
namespace {

using namespace testing;

// --- writers for what our own encoder does not write ---

struct JpegForm {
  J_COLOR_SPACE in = JCS_RGB, stored = JCS_YCbCr;
  bool progressive = false, arithmetic = false, separate_scans = false;
  int restart_rows = 0;
};

std::string jpeg(const Picture& p, const JpegForm& form) {
  jpeg_compress_struct c;
  jpeg_error_mgr errors;
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&c, &bytes, &size);
  const int channels = form.in == JCS_CMYK ? 4 : p.channels();
  c.image_width = JDIMENSION(p.width());
  c.image_height = JDIMENSION(p.height());
  c.input_components = channels;
  c.in_color_space = form.in;
  jpeg_set_defaults(&c);
  jpeg_set_colorspace(&c, form.stored);
  jpeg_set_quality(&c, 95, TRUE);
  c.restart_in_rows = form.restart_rows;
  c.arith_code = form.arithmetic;
  if (form.progressive) jpeg_simple_progression(&c);
  static const jpeg_scan_info kScans[] = {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
  if (form.separate_scans) c.scan_info = kScans, c.num_scans = 3;
  jpeg_start_compress(&c, TRUE);
  std::vector<uint8_t> line(size_t(p.width()) * 4);
  while (c.next_scanline < c.image_height) {
    JSAMPROW row = const_cast<uint8_t*>(p.row(int(c.next_scanline)));
    if (form.in == JCS_CMYK) {  // Adobe's inverted inks, no black
      for (int x = 0; x < p.width(); ++x) {
        std::copy(row + x * 3, row + x * 3 + 3, line.begin() + x * 4);
        line[size_t(x) * 4 + 3] = 255;
      }
      row = line.data();
    }
    jpeg_write_scanlines(&c, &row, 1);
  }
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
  std::string out(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return out;
}

// A PNG of any kind: `rows` as stored.
std::string png(int width, int height, int depth, int type, bool interlaced,
                const std::vector<std::vector<uint8_t>>& rows,
                const std::function<void(png_structp, png_infop)>& more = {}) {
  std::string out;
  png_structp p = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(p);
  png_set_write_fn(p, &out, [](png_structp w, png_bytep data, size_t size) {
    static_cast<std::string*>(png_get_io_ptr(w))->append(reinterpret_cast<char*>(data), size);
  }, nullptr);
  png_set_IHDR(p, info, png_uint_32(width), png_uint_32(height), depth, type,
               interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
  if (more) more(p, info);
  png_write_info(p, info);
  std::vector<png_bytep> pointers;
  for (const auto& row : rows) pointers.push_back(const_cast<png_bytep>(row.data()));
  png_write_image(p, pointers.data());
  png_write_end(p, info);
  png_destroy_write_struct(&p, &info);
  return out;
}

// An EXIF block that holds an orientation, little- or big-endian.
std::string exif(int orientation, bool big) {
  const auto two = [&](int v) { return big ? std::string{char(v >> 8), char(v)} : std::string{char(v), char(v >> 8)}; };
  const auto four = [&](int v) { return big ? two(0) + two(v) : two(v) + two(0); };
  return (big ? "MM" : "II") + two(42) + four(8) + two(1) + two(0x0112) + two(3) + four(1) + two(orientation) + two(0) + four(0);
}

std::string with_exif(const std::string& jpeg, int orientation, bool big = false) {
  const std::string block = std::string("Exif\0\0", 6) + exif(orientation, big);
  const int size = int(block.size()) + 2;
  return jpeg.substr(0, 2) + "\xFF\xE1" + char(size >> 8) + char(size) + block + jpeg.substr(2);
}

std::string kind_of(std::string_view bytes, const Limits& limits = {}) {
  try {
    decode(bytes, Color::stored, limits);
  } catch (const DecodeError& e) {
    EXPECT_FALSE(e.message().empty());
    return e.kind();
  }
  return "decoded";
}

std::vector<std::string> notes_of(const Decoded& d) {
  std::vector<std::string> out;
  for (const Note& n : d.notes) out.push_back(n.kind);
  return out;
}
using Kinds = std::vector<std::string>;

// What a picture must be stored as so that orientation o shows `upright`.
Picture stored_for(const Picture& upright, int o) {
  static constexpr int kInverse[] = {0, 1, 2, 3, 4, 5, 8, 7, 6};
  return apply_orientation(upright.copy(), kInverse[o]);
}

// --- what is read ---

TEST(Decode, PngComesBackBitForBit) {
  for (int channels : {1, 3}) {
    const Picture p = sample(37, 23, channels);
    const Decoded d = decode(encode_png(p));
    EXPECT_TRUE(equal(d.picture, p));
    EXPECT_EQ(d.format, "PNG");
    EXPECT_EQ(d.grey, channels == 1);
    EXPECT_TRUE(d.notes.empty());
  }
}

TEST(Decode, JpegOfEveryFormIsCloseToItsOriginal) {
  const Picture p = sample(61, 45, 3);
  const Picture grey = convert(p.copy(), Color::grey);
  for (bool progressive : {false, true})
    for (bool arithmetic : {false, true})
      for (int restart : {0, 1}) {
        const Decoded d = decode(jpeg(p, {.progressive = progressive, .arithmetic = arithmetic, .restart_rows = restart}));
        EXPECT_LT(difference(d.picture, p), 40);
        EXPECT_TRUE(d.notes.empty());
      }
  EXPECT_LT(difference(decode(jpeg(p, {.separate_scans = true})).picture, p), 40);
  EXPECT_LT(difference(decode(jpeg(p, {.stored = JCS_RGB})).picture, p), 40);
  const Decoded g = decode(jpeg(grey, {.in = JCS_GRAYSCALE, .stored = JCS_GRAYSCALE}));
  EXPECT_LT(difference(g.picture, grey), 20);
  EXPECT_TRUE(g.grey);
}

TEST(Decode, CmykAndYcckBecomeRgbWithANote) {
  const Picture p = sample(40, 30, 3);
  for (J_COLOR_SPACE stored : {JCS_CMYK, JCS_YCCK}) {
    const Decoded d = decode(jpeg(p, {.in = JCS_CMYK, .stored = stored}));
    EXPECT_LT(difference(d.picture, p), 40);
    EXPECT_EQ(notes_of(d), Kinds{"cmyk"});
  }
}

TEST(Decode, EveryExifOrientationGivesTheSameUprightPicture) {
  // Four corner colours; grey blocks of 8 so that JPEG keeps turned pictures equal.
  Picture upright(48, 32, 3);
  for (int y = 0; y < 32; ++y)
    for (int x = 0; x < 48; ++x)
      for (int c = 0; c < 3; ++c) upright.row(y)[x * 3 + c] = uint8_t(x < 16 ? 40 : x < 32 ? 200 : y < 16 ? 90 : 160);
  for (int o = 1; o <= 8; ++o)
    for (bool big : {false, true}) {
      const Decoded d = decode(with_exif(encode_jpeg(stored_for(upright, o), 100), o, big));
      EXPECT_EQ(d.orientation, o);
      EXPECT_EQ(d.picture.size(), upright.size()) << o;
      EXPECT_LE(difference(d.picture, upright), 1) << o;
      EXPECT_TRUE(d.notes.empty());
    }
}

TEST(Decode, OrientationsAreThoseOfTheExifStandard) {
  Picture p(3, 2, 1);  // a b c / d e f
  for (int i = 0; i < 6; ++i) p.row(0)[i] = uint8_t('a' + i);
  const char* expected[] = {"", "abcdef", "cbafed", "fedcba", "defabc", "adbecf", "daebfc", "fcebda", "cfbead"};
  for (int o = 1; o <= 8; ++o) {
    const Picture turned = apply_orientation(p.copy(), o);
    EXPECT_EQ(std::string(turned.row(0), turned.row(0) + 6), expected[o]) << o;
    EXPECT_EQ(turned.width(), o < 5 ? 3 : 2);
  }
}

TEST(Decode, PngOrientationCounts) {
  const std::string block = exif(6, true);
  const Picture p = sample(8, 5, 1);
  std::vector<std::vector<uint8_t>> rows;
  for (int y = 0; y < 5; ++y) rows.emplace_back(p.row(y), p.row(y) + 8);
  const std::string bytes = png(8, 5, 8, PNG_COLOR_TYPE_GRAY, false, rows, [&](png_structp w, png_infop info) {
    png_set_eXIf_1(w, info, png_uint_32(block.size()), reinterpret_cast<png_bytep>(const_cast<char*>(block.data())));
  });
  EXPECT_TRUE(equal(decode(bytes).picture, apply_orientation(p.copy(), 6)));
}

TEST(Decode, NonsenseOrientationsAreIgnored) {
  const std::string good = encode_jpeg(sample(16, 16, 1));
  for (int o : {0, 9, 255}) EXPECT_EQ(decode(with_exif(good, o)).orientation, 1);
  std::string lying = with_exif(good, 6);
  lying[20] = char(200);  // the number of entries
  EXPECT_NO_THROW(decode(lying));
}

TEST(Decode, PngOfEveryKindIsExpandedToBytes) {
  // 16 pixels: value i of 2^depth, spread over 0 … 255.
  for (bool interlaced : {false, true})
    for (int depth : {1, 2, 4, 8}) {
      const int values = 1 << depth;
      std::vector<uint8_t> row(size_t(16 * depth / 8));
      for (int i = 0; i < 16; ++i) row[size_t(i * depth / 8)] |= uint8_t((i % values) << (8 - depth - i * depth % 8));
      const Decoded d = decode(png(16, 3, depth, PNG_COLOR_TYPE_GRAY, interlaced, {row, row, row}));
      ASSERT_EQ(d.picture.channels(), 1);
      for (int y = 0; y < 3; ++y)
        for (int i = 0; i < 16; ++i) EXPECT_EQ(d.picture.row(y)[i], (i % values) * 255 / (values - 1)) << depth;
    }
  const auto palette = [](png_structp w, png_infop info) {
    const png_color colors[] = {{10, 20, 30}, {200, 100, 50}};
    png_set_PLTE(w, info, colors, 2);
  };
  const Decoded d = decode(png(8, 1, 1, PNG_COLOR_TYPE_PALETTE, false, {{0b01000000}}, palette));
  ASSERT_EQ(d.picture.channels(), 3);
  EXPECT_EQ(std::vector<int>(d.picture.row(0), d.picture.row(0) + 6), (std::vector<int>{10, 20, 30, 200, 100, 50}));
}

TEST(Decode, AlphaIsDroppedWithANote) {
  const Decoded ga = decode(png(2, 1, 8, PNG_COLOR_TYPE_GRAY_ALPHA, false, {{7, 0, 9, 255}}));
  EXPECT_EQ(std::vector<int>(ga.picture.row(0), ga.picture.row(0) + 2), (std::vector<int>{7, 9}));
  EXPECT_EQ(notes_of(ga), Kinds{"alpha"});
  const Decoded rgba = decode(png(1, 1, 8, PNG_COLOR_TYPE_RGB_ALPHA, false, {{1, 2, 3, 0}}));
  EXPECT_EQ(std::vector<int>(rgba.picture.row(0), rgba.picture.row(0) + 3), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(notes_of(rgba), Kinds{"alpha"});
}

TEST(Decode, SixteenBitsAreRoundedNotCut) {
  // 256 and 511 share their high byte: 1 and 2 when rounded, so the halves differ.
  const Decoded d = decode(png(3, 1, 16, PNG_COLOR_TYPE_GRAY, false, {{1, 0, 1, 255, 255, 255}}));
  EXPECT_EQ(std::vector<int>(d.picture.row(0), d.picture.row(0) + 3), (std::vector<int>{1, 2, 255}));
  EXPECT_EQ(notes_of(d), Kinds{"sixteen_bit"});
}

TEST(Decode, ColourIsAsAskedWhateverIsStored) {
  const Picture p = sample(20, 10, 3), g = convert(p.copy(), Color::grey);
  EXPECT_TRUE(equal(decode(encode_png(p), Color::grey).picture, g));
  const Decoded d = decode(encode_png(g), Color::rgb);
  ASSERT_EQ(d.picture.channels(), 3);
  for (size_t i = 0; i < g.bytes(); ++i)
    for (size_t c = 0; c < 3; ++c) ASSERT_EQ(d.picture.row(0)[i * 3 + c], g.row(0)[i]);
}

TEST(Decode, TinyAndThinPicturesWork) {
  for (auto [w, h] : {std::pair{1, 1}, {1, 4000}, {4000, 1}, {9, 9}}) {
    const Picture p = sample(w, h, 3);
    EXPECT_TRUE(equal(decode(encode_png(p)).picture, p));
    EXPECT_EQ(decode(encode_jpeg(p)).picture.size(), p.size());
  }
}

// --- what is refused, or mended with a note ---

TEST(Decode, ATruncatedJpegIsRefusedWhereverItIsCut) {
  const Picture p = sample(64, 64, 3);
  for (bool progressive : {false, true})
    for (int restart : {0, 1}) {
      const std::string whole = jpeg(p, {.progressive = progressive, .restart_rows = restart});
      const Picture expected = decode(whole).picture;
      for (size_t cut = 2; cut < whole.size() - 2; ++cut) {
        // Either refused, or every pixel is right: never a picture that is grey in part.
        try {
          const Decoded d = decode(std::string_view(whole).substr(0, cut));
          EXPECT_TRUE(equal(d.picture, expected)) << cut;
          EXPECT_EQ(notes_of(d), Kinds{"no_end"}) << cut;
          EXPECT_GT(cut, whole.size() - 4) << cut;
        } catch (const DecodeError& e) {
          EXPECT_EQ(e.kind(), "truncated") << cut << e.what();
        }
      }
    }
  for (const JpegForm& form : {JpegForm{.separate_scans = true}, JpegForm{.arithmetic = true}}) {
    const std::string whole = jpeg(p, form);
    for (size_t cut = 2; cut < whole.size() - 4; cut += 7)
      EXPECT_EQ(kind_of(std::string_view(whole).substr(0, cut)), "truncated") << cut;
  }
}

TEST(Decode, AMissingEndMarkerIsMended) {
  for (bool progressive : {false, true}) {
    const std::string whole = jpeg(sample(64, 64, 3), {.progressive = progressive});
    const Decoded d = decode(std::string_view(whole).substr(0, whole.size() - 2));
    EXPECT_TRUE(equal(d.picture, decode(whole).picture));
    EXPECT_EQ(notes_of(d), Kinds{"no_end"});
  }
}

TEST(Decode, AJpegCutAndClosedAgainIsRefused) {
  const std::string whole = jpeg(sample(64, 64, 3), {});
  EXPECT_EQ(kind_of(whole.substr(0, whole.size() * 6 / 10) + "\xFF\xD9"), "corrupt");
}

TEST(Decode, ExtraneousBytesAreMendedAndNamed) {
  std::string bytes = jpeg(sample(64, 64, 3), {});
  const Picture expected = decode(bytes).picture;
  bytes.insert(bytes.size() - 2, std::string(102, '\0'));
  const Decoded d = decode(bytes);
  EXPECT_TRUE(equal(d.picture, expected));
  ASSERT_EQ(notes_of(d), Kinds{"extraneous"});
  EXPECT_NE(d.notes[0].detail.find("extraneous bytes"), std::string::npos) << d.notes[0].detail;
}

TEST(Decode, ADisplacedRestartMarkerIsNamed) {
  std::string bytes = jpeg(sample(64, 64, 3), {.restart_rows = 1});
  const size_t at = bytes.find("\xFF\xD1");
  ASSERT_NE(at, std::string::npos);
  bytes[at + 1] = char(0xD2);
  try {
    EXPECT_EQ(notes_of(decode(bytes)), Kinds{"restart"});
  } catch (const DecodeError& e) {
    EXPECT_EQ(e.kind(), "corrupt");
  }
}

TEST(Decode, ATruncatedPngIsRefusedWhereverItIsCut) {
  const Picture p = sample(64, 64, 3);
  const std::string whole = encode_png(p);
  for (size_t cut = 8; cut < whole.size(); ++cut) {
    try {
      const Decoded d = decode(std::string_view(whole).substr(0, cut));
      EXPECT_TRUE(equal(d.picture, p)) << cut;
      EXPECT_EQ(notes_of(d), Kinds{"no_end"}) << cut;
    } catch (const DecodeError& e) {
      EXPECT_EQ(e.kind(), "truncated") << cut;
    }
  }
}

TEST(Decode, AFlippedBitInAPngIsRefused) {
  std::string bytes = encode_png(sample(64, 64, 1));
  bytes[bytes.size() / 2] ^= 0x10;
  EXPECT_EQ(kind_of(bytes), "corrupt");
}

TEST(Decode, WhatIsNoPictureIsCalledSo) {
  EXPECT_EQ(kind_of(""), "empty");
  EXPECT_EQ(kind_of("hello, world\n"), "not_a_picture");
  EXPECT_EQ(kind_of("\xFF\xD8"), "truncated");
  EXPECT_EQ(kind_of("GIF89a\1\0\1\0"), "unsupported");
  EXPECT_EQ(kind_of("BM      "), "unsupported");
  EXPECT_EQ(kind_of(std::string_view("RIFF\0\0\0\0WEBP", 12)), "unsupported");
  EXPECT_EQ(kind_of(std::string_view("II*\0", 4)), "unsupported");
  try {
    decode(std::string_view("GIF89a"));
    FAIL();
  } catch (const DecodeError& e) {
    EXPECT_NE(std::string(e.what()).find("GIF"), std::string::npos);
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
  }
}

TEST(Decode, HugeHeadersAreRefusedBeforeMemoryIsTaken) {
  std::string bytes = encode_jpeg(sample(16, 16, 3));
  const size_t sof = bytes.find("\xFF\xC0");
  ASSERT_NE(sof, std::string::npos);
  bytes.replace(sof + 5, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_EQ(kind_of(bytes), "too_large");
  bytes.replace(sof + 5, 4, "\xFF\xDC\xFF\xDC");  // the most that JPEG allows
  try {
    decode(bytes);
    FAIL();
  } catch (const DecodeError& e) {
    EXPECT_EQ(e.kind(), "too_large");
    EXPECT_NE(std::string(e.what()).find("65500 x 65500"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("max_pixels"), std::string::npos);
  }
  // A bomb: 30000 x 30000 at one bit is a file of about 100 KB.
  const std::vector<uint8_t> row(30000 / 8);
  const std::string bomb = png(30000, 30000, 1, PNG_COLOR_TYPE_GRAY, false, std::vector<std::vector<uint8_t>>(30000, row));
  EXPECT_LT(bomb.size(), 500'000u);
  EXPECT_EQ(kind_of(bomb), "too_large");
}

TEST(Decode, LimitsAreSettings) {
  const std::string small = encode_png(sample(20, 20, 3));
  EXPECT_EQ(kind_of(small, {.max_pixels = 399}), "too_large");
  EXPECT_EQ(kind_of(small, {.max_pixels = 400}), "decoded");
  EXPECT_EQ(kind_of(small, {.max_memory = 1000}), "too_large");
  const std::string progressive = jpeg(sample(64, 64, 3), {.progressive = true});
  EXPECT_EQ(kind_of(progressive, {.max_memory = 30000}), "too_large");
  EXPECT_EQ(kind_of(progressive), "decoded");
}

TEST(Decode, ALineScanPictureOfTwelveMegapixelsWorksByDefault) {
  const Picture p(4000, 3000, 1);
  std::fill(const_cast<uint8_t*>(p.row(0)), const_cast<uint8_t*>(p.row(0)) + p.bytes(), uint8_t(77));
  EXPECT_EQ(decode(encode_jpeg(p)).picture.size(), p.size());
}

TEST(Decode, RandomDamageNeverDoesHarm) {
  const Picture p = sample(48, 40, 3);
  const std::string files[] = {jpeg(p, {}), jpeg(p, {.progressive = true}), encode_png(p), with_exif(jpeg(p, {}), 6)};
  Random random(7);
  int refused = 0;
  for (int round = 0; round < 800; ++round) {
    std::string bytes = files[round % 4];
    for (int k = 0; k < 3; ++k) bytes[random.below(uint32_t(bytes.size()))] = char(random.next());
    refused += kind_of(bytes, {.max_pixels = 1 << 22}) != "decoded";
  }
  EXPECT_GT(refused, 100);
}

TEST(DecodeFile, TheSuffixOnlyEarnsANote) {
  TempFolder folder;
  const Picture p = sample(12, 12, 3);
  folder.put("a.jpg", encode_png(p));
  folder.put("B.PNG", encode_png(p));
  folder.put("c.JPeG", encode_jpeg(p));
  EXPECT_EQ(notes_of(decode_file(folder / "a.jpg")), Kinds{"suffix"});
  EXPECT_TRUE(decode_file(folder / "B.PNG").notes.empty());
  EXPECT_TRUE(decode_file(folder / "c.JPeG").notes.empty());
}

TEST(DecodeFile, AnyPathThatTheSystemAllowsWorks) {
  TempFolder folder;
  const Picture p = sample(12, 12, 1);
  for (const std::string& name : {std::string("数据集/光伏 板/图.png"), std::string("e\xCC\x81 \xC3\xA9.png"),
                                  std::string("\xF0\x9F\x98\x80 #%.png"), std::string("new\nline.png"), std::string("-dash.png"),
                                  std::string("bad\xFF utf8.png"), std::string(246, 'x') + ".png"}) {
    folder.put(name, encode_png(p));
    EXPECT_TRUE(equal(decode_file(folder / name).picture, p)) << name;
  }
}

TEST(DecodeFile, SaysWhyAFileCannotBeRead) {
  TempFolder folder;
  folder.put("empty.jpg", "");
  folder.put("big.png", encode_png(sample(64, 64, 3)));
  std::filesystem::create_directory(folder / "folder.png");
  const auto kind = [&](std::string_view name, const Limits& limits = {}) -> std::string {
    try {
      decode_file(folder / name, Color::stored, limits);
    } catch (const DecodeError& e) {
      return e.kind();
    }
    return "decoded";
  };
  EXPECT_EQ(kind("none.jpg"), "missing");
  EXPECT_EQ(kind("empty.jpg"), "empty");
  EXPECT_EQ(kind("folder.png"), "unreadable");
  EXPECT_EQ(kind("big.png", {.max_file = 100}), "too_large");
}

}  // namespace
}  // namespace cairn::data
