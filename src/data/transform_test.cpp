// SPDX-License-Identifier: Apache-2.0
// Transforms: pixels against formulas (Pillow is compared with in tests/peers), recipes, and chance.
#include "data/transform.h"

#include <cmath>
#include <set>

#include "data/testing.h"

namespace cairn::data {
namespace {

using namespace testing;

// Resampling as it is defined, in double: each axis is a convolution with the stretched triangle or cubic.
std::vector<double> by_formula(const Picture& p, Size to, Filter filter) {
  const auto kernel = [&](double x) {
    x = std::abs(x);
    if (filter == Filter::bilinear) return std::max(0.0, 1 - x);
    if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
    return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0.0;
  };
  const auto axis = [&](int in, int out, int i, int k) {  // weight of input k in output i
    const double scale = double(in) / out, stretch = std::max(1.0, scale);
    const auto w = [&](int j) { return kernel((j + 0.5 - (i + 0.5) * scale) / stretch); };
    double sum = 0;
    for (int j = 0; j < in; ++j) sum += w(j);
    return w(k) / sum;
  };
  std::vector<double> out;
  for (int y = 0; y < to.height; ++y)
    for (int x = 0; x < to.width; ++x)
      for (int c = 0; c < p.channels(); ++c) {
        double sum = 0;
        for (int v = 0; v < p.height(); ++v)
          for (int u = 0; u < p.width(); ++u)
            sum += axis(p.height(), to.height, y, v) * axis(p.width(), to.width, x, u) * p.row(v)[u * p.channels() + c];
        out.push_back(std::clamp(sum, 0.0, 255.0));
      }
  return out;
}

TEST(Resize, FollowsTheFormulaUpToItsRounding) {
  for (auto [from, to] : {std::pair{Size{21, 17}, Size{8, 5}}, {Size{9, 9}, Size{20, 31}}, {Size{16, 6}, Size{16, 9}},
                          {Size{12, 20}, Size{30, 20}}, {Size{1, 1}, Size{5, 4}}, {Size{1, 40}, Size{7, 3}}, {Size{30, 30}, Size{1, 1}}, {Size{700, 3}, Size{2, 2}}})
    for (int channels : {1, 3})
      for (Filter filter : {Filter::bilinear, Filter::bicubic}) {
        const Picture p = sample(from.width, from.height, channels, 3);
        const Picture r = resize(p, {0, 0, from.width, from.height}, to, filter);
        ASSERT_EQ(r.size(), to);
        const auto expected = by_formula(p, to, filter);
        for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(r.row(0)[i], expected[i], 1.15) << i;  // two roundings
      }
}

TEST(Resize, AWhitePixelIsSpreadByAntialiasing) {
  Picture p(8, 8, 1);
  std::fill(p.row(0), p.row(0) + 64, uint8_t(0));
  p.row(2)[2] = 255;
  const Picture r = resize(p, {0, 0, 8, 8}, {3, 3}, Filter::bilinear);
  const auto expected = by_formula(p, {3, 3}, Filter::bilinear);
  EXPECT_GT(r.row(0)[0], 0);  // without antialiasing the pixel would be missed
  for (int i = 0; i < 9; ++i) EXPECT_NEAR(r.row(0)[i], expected[size_t(i)], 1.01);
}

TEST(Resize, ABoxIsTheSameAsCroppingFirst) {
  const Picture p = sample(40, 30, 3);
  const Box box{5, 7, 21, 13};
  const Picture cropped = crop(p, box);
  EXPECT_TRUE(equal(resize(p, box, {11, 19}, Filter::bilinear), resize(cropped, {0, 0, 21, 13}, {11, 19}, Filter::bilinear)));
  EXPECT_TRUE(equal(resize(p, box, {21, 13}, Filter::bilinear), cropped));
}

TEST(Geometry, FlipsAndTurnsMovePixelsWhereTheySay) {
  Picture p(3, 2, 1);  // a b c / d e f
  for (int i = 0; i < 6; ++i) p.row(0)[i] = uint8_t('a' + i);
  const auto text = [](const Picture& q) { return std::string(q.row(0), q.row(0) + q.bytes()); };
  EXPECT_EQ(text(turn(p, 1)), "daebfc");
  EXPECT_EQ(text(turn(p, 2)), "fedcba");
  EXPECT_EQ(text(turn(p, 3)), "cfbead");
  Picture h = p.copy(), v = p.copy();
  flip_horizontal(h);
  flip_vertical(v);
  EXPECT_EQ(text(h), "cbafed");
  EXPECT_EQ(text(v), "defabc");
  const Picture rgb = sample(5, 4, 3);
  Picture twice = rgb.copy();
  flip_horizontal(twice);
  for (int c = 0; c < 3; ++c) EXPECT_EQ(twice.row(1)[c], rgb.row(1)[4 * 3 + c]);
  flip_horizontal(twice);
  EXPECT_TRUE(equal(twice, rgb));
}

TEST(Geometry, WarpByNothingChangesNothingAndByQuartersTurns) {
  const Picture p = sample(21, 21, 3);
  EXPECT_TRUE(equal(warp(p, {}), p));
  EXPECT_LE(difference(warp(p, {.degrees = 90}), turn(p, 1)), 1);
  EXPECT_LE(difference(warp(p, {.degrees = -90}), turn(p, 3)), 1);
  const Picture moved = warp(p, {.dx = 3, .dy = -2});
  for (int y = 0; y < 19; ++y)
    for (int x = 3; x < 21; ++x) EXPECT_EQ(moved.row(y)[x * 3], p.row(y + 2)[(x - 3) * 3]);
  EXPECT_EQ(moved.row(5)[0], p.row(7)[0]);  // the border is repeated
}

TEST(Color, FactorsOfOneChangeNothingAndOthersDoAsTheySay) {
  const Picture p = sample(20, 20, 3);
  Picture same = p.copy();
  adjust_color(same, 1, 1, 1);
  EXPECT_TRUE(equal(same, p));
  Picture dark = p.copy(), flat = p.copy(), grey = p.copy();
  adjust_color(dark, 0.5, 1, 1);
  adjust_color(flat, 1, 0, 1);
  adjust_color(grey, 1, 1, 0);
  const Picture expected_grey = convert(convert(p.copy(), Color::grey), Color::rgb);
  EXPECT_TRUE(equal(grey, expected_grey));
  for (size_t i = 0; i < p.bytes(); ++i) {
    EXPECT_NEAR(dark.row(0)[i], p.row(0)[i] * 0.5, 0.5);
    EXPECT_EQ(flat.row(0)[i], flat.row(0)[0]);
  }
}

TEST(Recipe, PrintsAndParsesBack) {
  for (const char* text : {
           "rgb", "grey", "rgb,resize=128,normalize=0.5:0.25", "grey,resize=640x480:bicubic,normalize=0.1:2",
           "rgb,resize_short=146,center_crop=128x96,normalize=0.485/0.456/0.406:0.229/0.224/0.225",
           "grey,random_resized_crop=64:0.08-1:0.75-1.3333,hflip=0.5,vflip=0.25,rot90,normalize=0.5:0.25",
           "rgb,affine=10:0.1:0.9-1.1:5,jitter=0.4:0.3:0.2", "rgb,random_resized_crop=64x32:0.5-1:1-1:bicubic"}) {
    const Transform t(text);
    EXPECT_EQ(t.recipe(), text);
    EXPECT_EQ(Transform(t.recipe()), t);
  }
  EXPECT_EQ(Transform("").recipe(), "rgb");
  EXPECT_EQ(Transform("resize=128,hflip").recipe(), "rgb,resize=128,hflip=0.5");
  EXPECT_EQ(Transform("random_resized_crop=32:bicubic").recipe(), "rgb,random_resized_crop=32:0.08-1:0.75-1.3333:bicubic");
  EXPECT_EQ(augment(64).eval(), resize(64));
}

TEST(Recipe, MistakesNameTheStep) {
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"resize", "\"resize\": a value is missing"}, {"resize=12a", "got \"12a\""}, {"resize=0", "a side of 1 to 16384"},
           {"resize=99999999999", "got \"99999999999\""}, {"resize=8:cubic", "bilinear or bicubic"}, {"resize=8:bicubic:1", "too many"},
           {"blur=3", "no such step"}, {"hflip=2", "expected 0 to 1"}, {"hflip=nan", "expected a number"}, {"resize=8,rgb", "comes first"},
           {"normalize=0.5", "missing"}, {"normalize=0.5:0", "expected 1e-06"}, {"normalize=0.5:1,hflip", "nothing can follow"},
           {"grey,normalize=1/2/3:1", "got 3 values, expected 1 or 1"}, {"random_resized_crop=8:1-0.5", "from low to high"},
           {"random_resized_crop=8:0.5", "expected a range"}, {"resize=8,,hflip", "no such step"}}) {
    try {
      const Transform t(text);
      ADD_FAILURE() << text << " became " << t.recipe();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::parse);
      EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << text << ": " << e.what();
    }
  }
}

TEST(Recipe, EvalLeavesChanceOut) {
  const Transform t("grey,resize_short=80,random_resized_crop=64:bicubic,hflip,rot90,affine=5,jitter=0.1,normalize=0.5:0.25");
  EXPECT_TRUE(t.random());
  EXPECT_EQ(t.eval().recipe(), "grey,resize_short=80,resize=64:bicubic,normalize=0.5:0.25");
  EXPECT_FALSE(t.eval().random());
  EXPECT_EQ(t.eval().eval(), t.eval());
}

TEST(Recipe, KnowsItsOutputSize) {
  EXPECT_EQ(Transform("resize=64x32").output_size(), (Size{64, 32}));
  EXPECT_EQ(Transform("resize_short=64,center_crop=48").output_size(), (Size{48, 48}));
  EXPECT_EQ(Transform("resize_short=64").output_size(), std::nullopt);
  EXPECT_EQ(Transform("hflip").output_size(), std::nullopt);
  EXPECT_EQ(Transform("resize_short=64").output_size({300, 200}), (Size{96, 64}));
  EXPECT_EQ(Transform("resize_short=64").output_size({200, 300}), (Size{64, 96}));
  EXPECT_EQ(Transform("resize_short=64").output_size({4000, 1}).height, 64);
}

std::vector<float> planes(const Transform& t, const Picture& p, const Draw& draw) {
  const Picture q = apply_random(t, apply_fixed(t, convert(p.copy(), t.channels() == 1 ? Color::grey : Color::rgb)), draw);
  std::vector<float> out(q.bytes());
  write_planes(t, q, out.data());
  return out;
}

TEST(Planes, AreNormalisedAndInOrder) {
  Picture p(2, 1, 3);
  for (int i = 0; i < 6; ++i) p.row(0)[i] = uint8_t(i * 51);
  const auto v = planes(Transform("normalize=0/0.5/1:1/0.5/0.25"), p, {});
  const std::vector<float> expected{0.0f, 0.6f, float((0.2 - 0.5) / 0.5), float((0.8 - 0.5) / 0.5), float((0.4 - 1) / 0.25), 0.0f};
  EXPECT_EQ(v, expected);
  EXPECT_EQ(planes(Transform("rgb"), p, {})[1], 0.6f);
}

TEST(Chance, DependsOnSeedEpochAndElementAlone) {
  const Transform t("rgb,random_resized_crop=16:0.3-1,hflip,vflip,rot90,affine=10:0.1:0.9-1.1:5,jitter=0.3:0.3:0.3,normalize=0.5:0.25");
  const Picture p = sample(40, 30, 3);
  const auto base = planes(t, p, {1, 2, 3});
  EXPECT_EQ(planes(t, p, {1, 2, 3}), base);
  EXPECT_NE(planes(t, p, {2, 2, 3}), base);
  EXPECT_NE(planes(t, p, {1, 3, 3}), base);
  EXPECT_NE(planes(t, p, {1, 2, 4}), base);
}

TEST(Chance, FlipsComeAsOftenAsAsked) {
  const Picture p = sample(6, 6, 1);
  for (double probability : {0.0, 0.25, 1.0}) {
    const Transform t("grey,hflip=" + std::to_string(probability));
    int flipped = 0;
    for (int i = 0; i < 4000; ++i) flipped += !equal(apply_random(t, p.copy(), {7, 0, i}), p);
    EXPECT_NEAR(flipped / 4000.0, probability, 0.03);
  }
}

TEST(Chance, CropsCoverTheAskedAreasAndStayInside) {
  // A ramp from 0 to 255: what is left of it tells how wide the crop was.
  Picture ramp(256, 64, 1);
  for (int y = 0; y < 64; ++y)
    for (int x = 0; x < 256; ++x) ramp.row(y)[x] = uint8_t(x);
  const Transform t("grey,random_resized_crop=32:0.25-0.25:1-1");
  std::set<int> starts;
  for (int i = 0; i < 200; ++i) {
    const Picture c = apply_random(t, ramp.copy(), {1, 0, i});
    EXPECT_NEAR(c.row(0)[31] - c.row(0)[0], 62, 4);  // 64 of 256 columns
    starts.insert(c.row(0)[0]);
  }
  EXPECT_GT(starts.size(), 50u);
  // Proportions that never fit end in the middle of the picture.
  const Picture thin = sample(400, 1, 1);
  EXPECT_EQ(apply_random(Transform("grey,random_resized_crop=8"), thin.copy(), {}).size(), (Size{8, 8}));
}

TEST(Steps, ACropLargerThanThePictureSaysSo) {
  try {
    apply_fixed(Transform("grey,center_crop=20"), sample(10, 30, 1));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::shape_mismatch);
    EXPECT_NE(std::string(e.what()).find("10 x 30"), std::string::npos);
  }
}

TEST(OnePicture, IsTheSameFromFileAndBytesAndWithoutChance) {
  TempFolder f;
  const Picture p = sample(40, 30, 3);
  f.put("p.png", encode_png(p));
  const Tensor a = load_picture(f / "p.png", augment(16)), b = decode_picture(encode_png(p), resize(16));
  EXPECT_EQ(a.shape(), (Shape{1, 3, 16, 16}));
  EXPECT_EQ(a.values<float>(), b.values<float>());
  EXPECT_EQ(b.values<float>(), planes(resize(16), p, {}));
  try {
    load_picture(f / "none.png", resize(16));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::not_found);
    EXPECT_NE(std::string(e.what()).find("none.png"), std::string::npos);
  }
}

}  // namespace
}  // namespace cairn::data
