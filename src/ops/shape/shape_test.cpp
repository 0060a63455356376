// SPDX-License-Identifier: Apache-2.0
// Shape operators, and matmul and linear as functions: views, inferred lengths, Python slices,
// errors.
#include <cairn/ops.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using Doubles = std::vector<double>;

// 0, 1, 2 … in row-major order.
Tensor counting(const Shape& shape) { return reshape(iota({shape.numel()}, 0, DType::f32), shape); }

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_NE(e.code(), ErrorCode::internal) << e.what();
    return e.message();
  }
  return "nothing thrown";
}

TEST(Shape, views_share_their_storage) {
  const Tensor x = counting({2, 3, 4});
  for (const Tensor& v :
       {reshape(x, {6, 4}), transpose(x), transpose(x, {2, 0, 1}), broadcast_to(x, {5, 2, 3, 4}),
        flip(x, {0, -1}), slice(x, {0, 1, 0}, {2, 3, 4}, {1, 1, 2}), squeeze(unsqueeze(x, 1), 1),
        flatten(x), identity(x)})
    EXPECT_EQ(v.storage(), x.storage());
  EXPECT_NE(reshape(transpose(x), {24}).storage(), x.storage());  // no view can show that
}

TEST(Shape, reshape_infers_one_length) {
  const Tensor x = counting({2, 6});
  EXPECT_EQ(reshape(x, {-1, 3}).shape(), (Shape{4, 3}));
  EXPECT_EQ(flatten(counting({2, 3, 4})).shape(), (Shape{2, 12}));
  EXPECT_EQ(flatten(counting({2, 3, 4}), 0).shape(), (Shape{24}));
  EXPECT_EQ(flatten(Tensor::scalar(1)).shape(), (Shape{1}));
  EXPECT_EQ(reshape(Tensor::zeros({0, 3}), {3, 0}).shape(), (Shape{3, 0}));
  EXPECT_EQ(message_of([&] {
              reshape(x, {5, -1});
            }),
            "reshape: parameter shape: got [5,-1], expected one with the 12 elements of input x, "
            "f32[2,6]");
  EXPECT_NE(message_of([&] { reshape(x, {-1, -1}); }), "nothing thrown");
  EXPECT_NE(message_of([&] { reshape(x, {-2, 6}); }), "nothing thrown");
  EXPECT_NE(message_of([&] { reshape(Tensor::zeros({0, 3}), {-1, 0}); }), "nothing thrown");
}

TEST(Shape, calls_fit_another_batch_size) {
  // The parameters recorded for one batch size give the right thing for another.
  const auto recorded = [](const Tensor& x) {
    return sum(flatten(unsqueeze(squeeze(reshape(x, {x.shape()[0], 1, 6}), 1), 2)), {1});
  };
  EXPECT_EQ(recorded(counting({2, 3, 2})).shape(), (Shape{2}));
  EXPECT_EQ(find_op("reshape")
                ->infer(find_op("reshape")->make_params({{"shape", std::vector<int64_t>{-1, 6}}}),
                        std::vector<TensorType>{{DType::f32, {5, 3, 2}}})[0]
                .shape,
            (Shape{5, 6}));
}

TEST(Shape, slice_follows_python) {
  const Tensor x = counting({5});
  const auto cut = [&](int64_t begin, int64_t end, int64_t step) {
    return slice(x, {begin}, {end}, {step}).to_doubles();
  };
  EXPECT_EQ(cut(1, 4, 1), (Doubles{1, 2, 3}));
  EXPECT_EQ(cut(-2, 100, 1), (Doubles{3, 4}));
  EXPECT_EQ(cut(-100, -3, 1), (Doubles{0, 1}));
  EXPECT_EQ(cut(4, 0, -2), (Doubles{4, 2}));
  EXPECT_EQ(cut(100, -100, -3), (Doubles{4, 1}));
  EXPECT_EQ(cut(3, 3, 1), Doubles{});
  EXPECT_EQ(cut(0, 5, INT64_MAX), Doubles{0});
  EXPECT_EQ(cut(-1, INT64_MIN, INT64_MIN), Doubles{4});
  EXPECT_NE(message_of([&] { cut(0, 1, 0); }).find("parameter step: got 0"), std::string::npos);
  EXPECT_NE(message_of([&] {
              slice(x, {0, 0}, {1, 1});
            }).find("expected 1, one an axis"),
            std::string::npos);
  EXPECT_EQ(flip(counting({2, 2}), {1}).to_doubles(), (Doubles{1, 0, 3, 2}));
}

TEST(Shape, joining_and_cutting_are_each_others_reverse) {
  const Tensor x = counting({2, 5});
  const auto parts = split(x, {2, 0, 3}, 1);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(concat(parts, -1).to_doubles(), x.to_doubles());
  EXPECT_EQ(stack({x, x, x}, 1).shape(), (Shape{2, 3, 5}));
  EXPECT_EQ(stack({x, x}, -1).shape(), (Shape{2, 5, 2}));
  EXPECT_NE(message_of([&] {
              split(x, {2, 2}, 1);
            }).find("got [2,2], expected lengths that add up to 5"),
            std::string::npos);
  EXPECT_NE(message_of([&] { concat({}, 0); }).find("got 0 inputs"), std::string::npos);
  EXPECT_NE(message_of([&] {
              concat({x, Tensor::zeros({3, 4})}, 1);
            }).find("input 1: got f32[3,4], expected f32[2,5] but for axis 1"),
            std::string::npos);
}

TEST(Shape, broadcast_and_pad_check_what_they_are_told) {
  EXPECT_EQ(broadcast_to(counting({3, 1}), {2, 3, 2}).to_doubles(),
            (Doubles{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  EXPECT_NE(message_of([] {
              broadcast_to(counting({3}), {4});
            }).find("got [4], expected a shape that input x, f32[3], broadcasts to"),
            std::string::npos);
  EXPECT_NE(message_of([] { broadcast_to(counting({3}), {-1, 3}); }), "nothing thrown");
  EXPECT_EQ(pad(counting({2}), {1}, {2}, 7).to_doubles(), (Doubles{7, 0, 1, 7, 7}));
  EXPECT_EQ(pad(Tensor::ones({1}, DType::u8), {1}, {0}, -5).to_doubles(), (Doubles{0, 1}));
  EXPECT_NE(message_of([] { pad(counting({2}), {-1}, {0}); }).find("got -1 and 0 for axis 0"),
            std::string::npos);
  EXPECT_NE(message_of([] { pad(counting({2}), {INT64_MAX}, {0}); }), "nothing thrown");
}

TEST(Shape, squeeze_and_transpose_name_the_axis) {
  EXPECT_EQ(message_of([] {
              squeeze(counting({2, 3}), 1);
            }),
            "squeeze: input x: got f32[2,3], expected length 1 along axis 1");
  EXPECT_NE(message_of([] { transpose(counting({3})); }), "nothing thrown");
  EXPECT_NE(message_of([] {
              transpose(counting({2, 3}), {0, 0});
            }).find("expected each of the 2 axes of input x once"),
            std::string::npos);
  EXPECT_EQ(transpose(counting({2, 3}), {-1, 0}).shape(), (Shape{3, 2}));
}

TEST(Linear, is_a_product_with_the_transposed_weight) {
  const Tensor w = counting({2, 3}), b = Tensor::from<float>({10, 20}, {2});
  EXPECT_EQ(linear(Tensor::ones({1, 3}), w, b).to_doubles(), (Doubles{13, 32}));
  EXPECT_EQ(linear(Tensor::ones({3}), w).to_doubles(), (Doubles{3, 12}));
  EXPECT_EQ(linear(Tensor::ones({4, 2, 3}), w, b).shape(), (Shape{4, 2, 2}));
  EXPECT_EQ(message_of([&] {
              linear(Tensor::ones({1, 4}), w);
            }),
            "linear: input weight: got f32[2,3], expected [out, in] with the last axis of input x, "
            "f32[1,4]");
}

TEST(Matmul, names_the_axis_that_does_not_fit) {
  EXPECT_EQ(message_of([] {
              matmul(Tensor::ones({2, 3}), Tensor::ones({4, 5}));
            }),
            "matmul: input b: got f32[4,5], expected 3 rather than 4 along axis 0 to match "
            "f32[2,3] of input a");
  EXPECT_EQ(message_of([] {
              matmul(Tensor::ones({3}), Tensor::ones({3, 5}));
            }),
            "matmul: input a: got f32[3], expected at least two axes");
  EXPECT_EQ(matmul(Tensor::ones({2, 0}), Tensor::ones({0, 3})).to_doubles(), Doubles(6, 0));
}

}  // namespace
}  // namespace cairn
