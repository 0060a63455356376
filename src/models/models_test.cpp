// SPDX-License-Identifier: Apache-2.0
#include <cairn/models.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "ops/context.h"

namespace cairn::models {
namespace {

// torchvision's names, order, types and shapes, frozen in files beside this one.
TEST(Models, HaveTorchvisionsNamesAndShapes) {
  for (const char* name : {"resnet18", "resnet50", "mobilenet_v2"}) {
    std::ifstream file(std::string(CAIRN_SOURCE_DIR) + "/src/models/torchvision/" + name + ".txt");
    ASSERT_TRUE(file) << name;
    const auto net = make(name, {.draw = false});
    std::string line;
    for (const Variable& v : net->variables()) {
      ASSERT_TRUE(std::getline(file, line)) << name << " ends before " << v.name();
      EXPECT_EQ(fmt::format("{} {}", v.name(), to_string(v.type())), line);
    }
    EXPECT_FALSE(std::getline(file, line)) << line;
  }
}

TEST(Models, HaveAsManyParametersAsTorchvisions) {
  const std::pair<const char*, int64_t> counts[] = {
      {"resnet18", 11689512},  {"resnet34", 21797672},  {"resnet50", 25557032},
      {"resnet101", 44549160}, {"resnet152", 60192808}, {"mobilenet_v2", 3504872}};
  for (const auto& [name, count] : counts)
    EXPECT_EQ(make(name, {.draw = false})->parameter_count(), count) << name;
}

// The authors' counts with 80 classes (7,235,389 and 37,620,125), less their detection heads, plus our classifier.
TEST(Models, BodiesOfYoloHaveAsManyParametersAsTheAuthors) {
  const int64_t v5 = 7235389 - 255 * (129 + 257 + 513);
  EXPECT_EQ(make("yolov5s_body", {.draw = false})->parameter_count(), v5 + 1000 * (128 + 256 + 512 + 1));
  const int64_t v7 = 37620125 - 255 * (257 + 513 + 1025);
  EXPECT_EQ(make("yolov7_body", {.draw = false})->parameter_count(), v7 + 1000 * (256 + 512 + 1024 + 1));
  EXPECT_EQ(make("yolov5s_body", {.draw = false})->child("model.2.m.0.cv2").variables()[0].name(), "model.2.m.0.cv2.conv.weight");
  EXPECT_THROW((*make("yolov5s_body", {.classes = 2, .width = 0.125}))(Tensor::ones({1, 3, 40, 40})), Error);
}

TEST(Models, GiveOneOutputAClassWhateverTheWidth) {
  for (const std::string& name : names()) {
    const auto net = make(name, {.classes = 3, .in_channels = 1, .width = 0.125, .input_size = 32});
    const auto y = (*net)(Tensor::ones({2, 1, 32, 32}));
    EXPECT_EQ(y.shape(), (Shape{2, 3})) << name;
    for (double v : y.to_doubles()) EXPECT_TRUE(std::isfinite(v)) << name;
    bool found = false;
    for (const Variable& v : net->variables()) found = found || v.name().starts_with(head(name));
    EXPECT_TRUE(found) << name << " has no " << head(name);
  }
}

TEST(Models, OfSmallInputsKeepTheirFirstSize) {
  const auto net = make("resnet18", {.classes = 2, .width = 0.25, .small_input = true});
  EXPECT_EQ(net->variables()[0].type().shape, (Shape{16, 3, 3, 3}));
  EXPECT_EQ((*net)(Tensor::ones({1, 3, 8, 8})).shape(), (Shape{1, 2}));
}

TEST(Models, StartAsTorchvisionsDo) {
  const auto net = make("resnet18", {.width = 0.25});
  const auto deviation = [](const Variable& v) {
    double squares = 0;
    for (double x : v.value().to_doubles()) squares += x * x;
    return std::sqrt(squares / double(v.type().numel()));
  };
  for (const Variable& v : net->variables()) {
    const Shape& s = v.type().shape;
    if (s.rank() != 4 || v.type().numel() < 20000) continue;
    EXPECT_NEAR(deviation(v) / std::sqrt(2.0 / double(s[0] * s[2] * s[3])), 1, 0.03) << v.name();
  }
  const auto again = make("resnet18", {.width = 0.25}),
             other = make("resnet18", {.width = 0.25, .seed = 1});
  EXPECT_EQ(net->variables()[0].value().to_doubles(), again->variables()[0].value().to_doubles());
  EXPECT_NE(net->variables()[0].value().to_doubles(), other->variables()[0].value().to_doubles());
}

TEST(Models, RefuseWhatMakesNone) {
  EXPECT_THROW(make("resnet19"), Error);
  EXPECT_THROW(make("resnet18", {.classes = 0}), Error);
  EXPECT_THROW(make("resnet18", {.width = -1}), Error);
  EXPECT_THROW(make("lenet", {.input_size = 8}), Error);
}

}  // namespace
}  // namespace cairn::models
