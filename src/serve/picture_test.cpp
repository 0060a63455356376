// SPDX-License-Identifier: Apache-2.0
// Encoded pictures in requests: the same numbers as on the training side, and one bad picture is
// named.
#include "serve/picture.h"

#include <cairn/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/decode.h"

namespace cairn::serve {
namespace {

data::Picture painted(int width, int height, int channels) {
  data::Picture p(width, height, channels);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width * channels; ++x) p.row(y)[x] = uint8_t(x * 7 + y * 13 + x * y);
  return p;
}

// A JPEG with an EXIF block that says how it is turned.
std::string turned_jpeg(int orientation) {
  const std::string jpeg = data::encode_jpeg(painted(40, 24, 3));
  std::string exif("Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 24);
  exif += std::string({char(orientation), 0, 0, 0, 0, 0, 0, 0});
  const size_t length = exif.size() + 2;
  return jpeg.substr(0, 2) + "\xFF\xE1" + char(length >> 8) + char(length) + exif + jpeg.substr(2);
}

TEST(ServePictures, ABatchOfMixedFilesHasTheBitsOfTheTrainingSide) {
  const std::string files[] = {data::encode_jpeg(painted(50, 30, 3)), turned_jpeg(6),
                               data::encode_png(painted(17, 90, 1)),
                               data::encode_png(painted(16, 16, 3))};
  for (const char* recipe :
       {"rgb,resize=16,normalize=0.5:0.25", "grey,resize_short=20,center_crop=16x12",
        "rgb,random_resized_crop=16,hflip,normalize=0.5:0.25"}) {
    const data::Transform transform(recipe);
    const Blob batch = decode_pictures(bytes_blob({4}, files), transform);
    const auto got = batch.as<float>();
    const size_t one = got.size() / 4;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got.data()) % 64, 0u);
    for (size_t i = 0; i < 4; ++i) {
      const Tensor alone = data::decode_picture(files[i], transform);
      EXPECT_EQ(std::vector<int64_t>(batch.shape.begin() + 1, batch.shape.end()),
                std::vector<int64_t>(alone.shape().begin() + 1, alone.shape().end()));
      EXPECT_TRUE(std::ranges::equal(got.subspan(i * one, one), alone.values<float>()))
          << recipe << " " << i;
    }
  }
  // The turned one is upright: taller than wide, so its first rows differ from the stored ones.
  EXPECT_NE(data::decode(files[1]).picture.height(), 24);
}

TEST(ServePictures, ABrokenPictureInTheMiddleIsNamedWithItsReason) {
  const std::string good = data::encode_png(painted(8, 8, 3));
  const std::string gif = "GIF89a..........";
  for (const std::string& bad :
       {std::string(), std::string("hello"), good.substr(0, good.size() / 2), gif}) {
    const std::string files[] = {good, bad, good};
    try {
      decode_pictures(bytes_blob({3}, files), data::Transform("rgb,resize=8"));
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_TRUE(e.message().starts_with("request: picture 1 of 3: ")) << e.message();
      EXPECT_GT(e.message().size(), 30u);
    }
  }
}

TEST(ServePictures, NoPicturesMakeAnEmptyBatch) {
  const Blob batch = decode_pictures(bytes_blob({0}, {}), data::Transform("rgb,resize=8"));
  EXPECT_EQ(batch.shape, (std::vector<int64_t>{0, 3, 8, 8}));
  EXPECT_TRUE(batch.bytes.empty());
}

TEST(ServePictures, ARecipeWithoutAFixedSizeIsRefused) {
  EXPECT_THROW(decode_pictures(bytes_blob({0}, {}), data::Transform("rgb,resize_short=8")), Error);
}

TEST(ServePictures, AHugePictureIsRefusedByItsHeader) {
  const std::string file = data::encode_png(painted(300, 300, 1));
  EXPECT_THROW(decode_pictures(bytes_blob({1}, {&file, 1}), data::Transform("grey,resize=8"),
                               {.max_pixels = 1000}),
               Error);
}

}  // namespace
}  // namespace cairn::serve
