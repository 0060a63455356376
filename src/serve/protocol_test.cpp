// SPDX-License-Identifier: Apache-2.0
// The v2 messages without sockets: what is accepted, what is refused and why, what is answered.
#include "serve/protocol.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "serve/engine.h"
#include "serve/json.h"
#include "serve/test_models.h"

namespace cairn::serve {
namespace {

using Json = nlohmann::json;

Body body_of(std::string text) {
  auto owner = std::make_shared<const std::string>(std::move(text));
  return {std::as_bytes(std::span(*owner)), owner};
}

template <class T>
std::string raw(std::initializer_list<T> values) {
  std::string out(values.size() * sizeof(T), '\0');
  std::memcpy(out.data(), std::data(values), out.size());
  return out;
}

std::string packed(std::initializer_list<std::string_view> elements) {
  std::string out;
  for (const auto e : elements) out += raw<uint32_t>({uint32_t(e.size())}) + std::string(e);
  return out;
}

ModelInfo one_input(DataType type, std::vector<int64_t> shape = {-1}) {
  return testing::echo_model("echo", type, std::move(shape))->info();
}

InferRequest parse_json(const ModelInfo& info, const std::string& text) {
  return parse_infer(info, body_of(text), {});
}
InferRequest parse_binary(const ModelInfo& info, const std::string& json, const std::string& tail) {
  return parse_infer(info, body_of(json + tail), {.json_size = std::to_string(json.size())});
}

std::string input_json(std::string_view type, std::string_view shape, std::string_view data) {
  return R"({"inputs":[{"name":"x","datatype":")" + std::string(type) + R"(","shape":)" +
         std::string(shape) + R"(,"data":)" + std::string(data) + "}]}";
}

template <class T>
std::vector<T> values(const Blob& blob) {
  const auto v = blob.as<T>();
  return {v.begin(), v.end()};
}

// Runs f and gives the code and text of the Error it must throw.
template <class F>
std::pair<ErrorCode, std::string> error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return {e.code(), e.message()};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(ProtocolParse, FlatAndNestedDataGiveTheSameRowMajorTensor) {
  const ModelInfo info = one_input(DataType::f32, {-1, 3});
  const std::vector<float> want{1, 2.5, -3e-2f, 4, 5, 6};
  for (const char* data :
       {"[1,2.5,-3e-2,4,5,6]", "[[1,2.5,-3e-2],[4,5,6]]", " [ [1 ,2.5\n,-3E-2] , [4.0,5,6]\t] "}) {
    const InferRequest r = parse_json(info, input_json("FP32", "[2,3]", data));
    EXPECT_EQ(r.inputs[0].shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(values<float>(r.inputs[0]), want) << data;
  }
}

TEST(ProtocolParse, EveryDatatypeIsReadFromJsonAtItsLimits) {
  const auto x = [](DataType type, std::string_view data, std::string_view shape = "[2]") {
    return parse_json(one_input(type), input_json(name(type), shape, data)).inputs[0];
  };
  EXPECT_EQ(values<uint8_t>(x(DataType::boolean, "[true,false,1,0]", "[4]")),
            (std::vector<uint8_t>{1, 0, 1, 0}));
  EXPECT_EQ(values<uint8_t>(x(DataType::u8, "[0,255]")), (std::vector<uint8_t>{0, 255}));
  EXPECT_EQ(values<uint16_t>(x(DataType::u16, "[0,65535]")), (std::vector<uint16_t>{0, 65535}));
  EXPECT_EQ(values<uint32_t>(x(DataType::u32, "[0,4294967295]")),
            (std::vector<uint32_t>{0, UINT32_MAX}));
  EXPECT_EQ(values<uint64_t>(x(DataType::u64, "[0,18446744073709551615]")),
            (std::vector<uint64_t>{0, UINT64_MAX}));
  EXPECT_EQ(values<int8_t>(x(DataType::i8, "[-128,127]")), (std::vector<int8_t>{-128, 127}));
  EXPECT_EQ(values<int16_t>(x(DataType::i16, "[-32768,32767]")),
            (std::vector<int16_t>{-32768, 32767}));
  EXPECT_EQ(values<int32_t>(x(DataType::i32, "[-2147483648,2147483647]")),
            (std::vector<int32_t>{INT32_MIN, INT32_MAX}));
  EXPECT_EQ(values<int64_t>(x(DataType::i64, "[-9223372036854775808,9223372036854775807]")),
            (std::vector<int64_t>{INT64_MIN, INT64_MAX}));
  EXPECT_EQ(values<int32_t>(x(DataType::i32, "[1.0,2e3]")), (std::vector<int32_t>{1, 2000}));
  EXPECT_EQ(values<uint16_t>(x(DataType::f16, "[1,-65504]")),
            (std::vector<uint16_t>{0x3C00, 0xFBFF}));
  EXPECT_EQ(values<uint16_t>(x(DataType::bf16, "[1,-2]")), (std::vector<uint16_t>{0x3F80, 0xC000}));
  EXPECT_EQ(values<float>(x(DataType::f32, "[3.4028235e38,1e-60]")),
            (std::vector<float>{3.4028235e38f, 0}));
  EXPECT_EQ(values<double>(x(DataType::f64, "[1.7976931348623157e308,5e-324]")),
            (std::vector<double>{std::numeric_limits<double>::max(), 5e-324}));
  EXPECT_EQ(strings(x(DataType::bytes, R"(["a\u00e9\ud83d\ude00\n\"/\/",""])")),
            (std::vector<std::string_view>{"aé😀\n\"//", ""}));
}

TEST(ProtocolParse, NotANumberAndInfinityAreAcceptedAsTokensAndAsStrings) {
  for (const char* data : {"[NaN,Infinity,-Infinity]", R"(["NaN","Infinity","-Infinity"])"})
    for (const DataType type : {DataType::f32, DataType::f64, DataType::f16, DataType::bf16}) {
      const Blob x = parse_json(one_input(type), input_json(name(type), "[3]", data)).inputs[0];
      if (type == DataType::f32) {
        EXPECT_TRUE(std::isnan(values<float>(x)[0]));
        EXPECT_EQ(values<float>(x)[1], INFINITY);
        EXPECT_EQ(values<float>(x)[2], -INFINITY);
      } else if (type == DataType::f16) {
        EXPECT_EQ(values<uint16_t>(x)[1], 0x7C00);
        EXPECT_EQ(values<uint16_t>(x)[2], 0xFC00);
      }
    }
}

TEST(ProtocolParse, FloatsAreReadAsTheNearestFloatNotThroughDouble) {
  // Half-way between two floats but for one digit far behind: rounding twice would lose it.
  const Blob x = parse_json(one_input(DataType::f32),
                            input_json("FP32", "[1]", "[1.00000017881393432617187500000001]"))
                     .inputs[0];
  EXPECT_EQ(values<float>(x)[0], std::nextafter(1.00000011920928955078125f, 2.0f));
}

TEST(ProtocolParse, EmptyTensorsAndLoneValuesAreLegal) {
  EXPECT_TRUE(parse_json(one_input(DataType::f32), input_json("FP32", "[0]", "[]"))
                  .inputs[0]
                  .bytes.empty());
  const ModelInfo matrix = one_input(DataType::f32, {-1, -1});
  EXPECT_TRUE(parse_json(matrix, input_json("FP32", "[2,0]", "[[],[]]")).inputs[0].bytes.empty());
  EXPECT_TRUE(parse_json(matrix, input_json("FP32", "[2,0]", "[]")).inputs[0].bytes.empty());
  EXPECT_EQ(values<float>(
                parse_json(one_input(DataType::f32, {}), input_json("FP32", "[]", "7")).inputs[0]),
            std::vector<float>{7});
  EXPECT_TRUE(
      parse_binary(
          one_input(DataType::bytes),
          R"({"inputs":[{"name":"x","datatype":"BYTES","shape":[0],"parameters":{"binary_data_size":0}}]})",
          "")
          .inputs[0]
          .bytes.empty());
}

TEST(ProtocolParse, MembersComeInAnyOrderAndUnknownOnesAreIgnored) {
  const InferRequest r = parse_json(one_input(DataType::i32), R"({
      "model_name": "echo", "extra": {"deep": [[{}], null, "s", -1.5e3, true]},
      "inputs": [{"data": [1, 2], "note": null, "shape": [2], "parameters": {"a": 1}, "datatype": "INT32", "name": "x"}],
      "parameters": {"priority": 3, "sequence_id": "s"}, "outputs": null, "id": "caf\u00e9"})");
  EXPECT_EQ(values<int32_t>(r.inputs[0]), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(r.id, "café");
  EXPECT_FALSE(r.timeout);
}

TEST(ProtocolParse, BinaryTensorsAreViewsIntoTheBodyInTheOrderListed) {
  const ModelInfo info = testing::add_model()->info();
  const std::string json =
      R"({"inputs":[{"name":"b","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}},)"
      R"({"name":"a","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}}],)"
      R"("parameters":{"binary_data_output":true,"timeout":2500}})";
  const std::string padded = json + std::string((4 - json.size() % 4) % 4, ' ');
  const Body body = body_of(padded + raw<float>({1, 2, 3, 4}) + raw<float>({5, 6, 7, 8}));
  const InferRequest r = parse_infer(info, body, {.json_size = std::to_string(padded.size())});
  EXPECT_EQ(values<float>(r.inputs[0]), (std::vector<float>{5, 6, 7, 8}));
  EXPECT_EQ(values<float>(r.inputs[1]), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(r.inputs[1].bytes.data(), body.bytes.data() + padded.size());
  EXPECT_TRUE(r.outputs.at(0).binary);
  EXPECT_EQ(r.timeout, std::chrono::microseconds(2500));
}

TEST(ProtocolParse, AMisalignedBinaryTensorIsCopiedToAnAlignedPlace) {
  ModelInfo info = one_input(DataType::f64);
  info.inputs.push_back({"tag", DataType::bytes, {-1}});
  const InferRequest r = parse_binary(
      info,
      R"({"inputs":[{"name":"tag","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}},)"
      R"({"name":"x","shape":[2],"datatype":"FP64","parameters":{"binary_data_size":16}}]})",
      packed({"!"}) + raw<double>({1.5, -2}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(r.inputs[0].bytes.data()) % 8, 0u);
  EXPECT_EQ(values<double>(r.inputs[0]), (std::vector<double>{1.5, -2}));
  EXPECT_EQ(strings(r.inputs[1]), std::vector<std::string_view>{"!"});
}

TEST(ProtocolParse, JsonAndBinaryInputsCanBeMixed) {
  const InferRequest r = parse_binary(
      testing::add_model()->info(),
      R"({"inputs":[{"name":"a","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]},)"
      R"({"name":"b","shape":[1,4],"datatype":"FP32","parameters":{"binary_data_size":16}}]})",
      raw<float>({9, 8, 7, 6}));
  EXPECT_EQ(values<float>(r.inputs[0]), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(values<float>(r.inputs[1]), (std::vector<float>{9, 8, 7, 6}));
}

TEST(ProtocolParse, OutputsCanBeChosenWithTheirForms) {
  ModelInfo info = one_input(DataType::i32);
  info.outputs.push_back({"z", DataType::f32, {-1, 2}});
  const InferRequest r =
      parse_json(info, R"({"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[1]}],
      "parameters":{"binary_data_output":true},
      "outputs":[{"name":"z","parameters":{"binary_data":false,"classification":2}},{"name":"y"}]})");
  ASSERT_EQ(r.outputs.size(), 2u);
  EXPECT_EQ(r.outputs[0].index, 1u);
  EXPECT_FALSE(r.outputs[0].binary);
  EXPECT_EQ(r.outputs[0].classes, 2);
  EXPECT_EQ(r.outputs[1].index, 0u);
  EXPECT_TRUE(r.outputs[1].binary);
}

TEST(ProtocolParse, ARawBodyIsTheOnlyInput) {
  const InferRequest r = parse_infer(one_input(DataType::f32, {-1, 2}),
                                     body_of(raw<float>({1, 2, 3, 4})), {.json_size = "0"});
  EXPECT_EQ(r.inputs[0].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_TRUE(r.outputs[0].binary);
  const InferRequest text = parse_infer(one_input(DataType::bytes), body_of("any bytes"),
                                        {.json_size = "0", .accept = "application/json"});
  EXPECT_EQ(strings(text.inputs[0]), std::vector<std::string_view>{"any bytes"});
  EXPECT_FALSE(text.outputs[0].binary);
}

TEST(ProtocolParse, APictureInputTakesTensorsBytesAndRawPictures) {
  const ModelInfo info = testing::picture_model()->info();
  EXPECT_EQ(
      parse_json(
          info,
          R"({"inputs":[{"name":"image","datatype":"FP32","shape":[1,1,2,2],"data":[1,2,3,4]}]})")
          .inputs[0]
          .datatype,
      DataType::f32);
  const InferRequest two = parse_binary(
      info,
      R"({"inputs":[{"name":"image","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":12}}]})",
      packed({"abc", "d"}));
  EXPECT_EQ(strings(two.inputs[0]), (std::vector<std::string_view>{"abc", "d"}));
  const std::string png = "\x89PNG\r\n\x1A\n....";
  EXPECT_EQ(strings(parse_infer(info, body_of(png), {.json_size = "0"}).inputs[0]),
            std::vector<std::string_view>{png});
  const InferRequest typed = parse_infer(info, body_of("GIF"), {.content_type = "image/gif"});
  EXPECT_EQ(strings(typed.inputs[0]),
            std::vector<std::string_view>{"GIF"});  // for the decoder to refuse
  EXPECT_FALSE(typed.outputs[0].binary);
  EXPECT_EQ(
      parse_infer(info, body_of(raw<float>({1, 2, 3, 4})), {.json_size = "0"}).inputs[0].shape,
      (std::vector<int64_t>{1, 1, 2, 2}));
}

// ---- hostile and mistaken requests
// ----------------------------------------------------------------

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}
std::string many_keys(int count) {
  std::string out = "{";
  for (int i = 0; i < count; ++i) out += fmt::format("\"{}\":0,", i);
  return out + R"("z":0})";
}

struct BadRequest {
  std::string what;  // shown when it fails
  std::string json, tail;
  ErrorCode code;
  std::string says;            // part of the message
  std::string json_size = {};  // empty: the JSON's size when there is a tail
};

TEST(ProtocolParse, EveryBadRequestIsRefusedWithItsReason) {
  using E = ErrorCode;
  const auto in = [](std::string type, std::string shape, std::string data) {
    return input_json(type, shape, data);
  };
  const auto with = [](std::string members) {  // a good input x and more members
    return R"({"inputs":[{"name":"x","datatype":"INT32","shape":[2],"data":[1,2]}],)" + members +
           "}";
  };
  const auto binary = [](std::string size, std::string shape = "[2]", std::string type = "INT32") {
    return R"({"inputs":[{"name":"x","datatype":")" + type + R"(","shape":)" + shape +
           R"(,"parameters":{"binary_data_size":)" + size + "}}]}";
  };
  const std::string good = in("INT32", "[2]", "[1,2]");
  const std::vector<BadRequest> cases = {
      {"empty", "", "", E::parse, "expected '{'"},
      {"not JSON", "hello", "", E::parse, "expected '{'"},
      {"a list", "[]", "", E::parse, "expected '{'"},
      {"cut off", good.substr(0, good.size() - 1), "", E::parse, "expected '}'"},
      {"cut off in a string", R"({"id":"ab)", "", E::parse, "text ends inside a string"},
      {"cut off in an escape", R"({"id":"ab\)", "", E::parse, "text ends inside a string"},
      {"cut-off \\u", R"({"id":"\u12)", "", E::parse, "cut-off"},
      {"text behind", good + "x", "", E::parse, "more text"},
      {"two values", good + good, "", E::parse, "more text"},
      {"trailing comma", R"({"inputs":[],})", "", E::parse, "expected a string"},
      {"single quotes", "{'inputs':[]}", "", E::parse, "expected a string"},
      {"no colon", R"({"inputs" []})", "", E::parse, "expected ':'"},
      {"control character", "{\"id\":\"a\nb\"}", "", E::parse, "control character"},
      {"unknown escape", R"({"id":"\x"})", "", E::parse, "unknown escape"},
      {"lone high surrogate", R"({"id":"\ud800"})", "", E::parse, "lone surrogate"},
      {"lone low surrogate", R"({"id":"\udc00"})", "", E::parse, "lone surrogate"},
      {"bad pair", R"({"id":"\ud800\u0041"})", "", E::parse, "lone surrogate"},
      {"bad UTF-8", "{\"id\":\"\xFF\"}", "", E::parse, "not UTF-8"},
      {"overlong UTF-8", "{\"id\":\"\xC0\xAF\"}", "", E::parse, "not UTF-8"},
      {"encoded surrogate", "{\"id\":\"\xED\xA0\x80\"}", "", E::parse, "not UTF-8"},
      {"NUL inside", std::string("{\"inputs\"\0:[]}", 14), "", E::parse, "expected ':'"},
      {"deep nesting", R"({"x":)" + std::string(100000, '[') + std::string(100000, ']') + "}", "",
       E::parse, "nested too deeply"},
      {"deep unclosed objects", repeated(R"({"a":)", 50000), "", E::parse, "nested too deeply"},
      {"same key twice", R"({"inputs":[],"inputs":[]})", "", E::parse, "comes twice"},
      {"many keys", many_keys(5000), "", E::parse, "too many"},
      {"leading zero", in("INT32", "[1]", "[01]"), "", E::parse, "expected ']'"},
      {"plus sign", in("INT32", "[1]", "[+1]"), "", E::parse, "expected a number"},
      {"hexadecimal", in("INT32", "[1]", "[0x10]"), "", E::parse, "expected ']'"},
      {"bare dot", in("FP32", "[1]", "[.5]"), "", E::parse, "expected a number"},
      {"dot without digits", in("FP32", "[1]", "[5.]"), "", E::parse, "expected a number"},
      {"exponent without digits", in("FP32", "[1]", "[5e]"), "", E::parse, "expected a number"},
      {"lone minus", in("INT32", "[1]", "[-]"), "", E::parse, "expected a number"},
      {"inf in small letters", in("FP32", "[1]", "[inf]"), "", E::parse, "expected a number"},
      {"null in data", in("INT32", "[2]", "[1,null]"), "", E::parse, "expected a number"},
      {"null data", in("INT32", "[2]", "null"), "", E::invalid_argument, "neither"},
      {"a string among integers", in("INT32", "[1]", R"(["1"])"), "", E::parse,
       "expected a number"},
      {"an object in data", in("INT32", "[1]", "[{}]"), "", E::parse, "expected a number"},
      {"a fraction for INT32", in("INT32", "[1]", "[1.5]"), "", E::parse, "1.5 is not a INT32"},
      {"NaN for INT32", in("INT32", "[1]", "[NaN]"), "", E::parse, "NaN is not a INT32"},
      {"beyond INT32", in("INT32", "[1]", "[2147483648]"), "", E::parse, "is not a INT32"},
      {"bool for INT32", in("INT32", "[1]", "[true]"), "", E::parse, "expected a number"},
      {"no inputs", R"({"id":"1"})", "", E::invalid_argument, "missing 'x'"},
      {"empty inputs", R"({"inputs":[]})", "", E::invalid_argument, "missing 'x'"},
      {"inputs is an object", R"({"inputs":{}})", "", E::parse, "expected '['"},
      {"input is a number", R"({"inputs":[1]})", "", E::parse, "expected '{'"},
      {"no name", R"({"inputs":[{"datatype":"INT32","shape":[1],"data":[1]}]})", "",
       E::invalid_argument, "no 'name'"},
      {"no datatype", R"({"inputs":[{"name":"x","shape":[1],"data":[1]}]})", "",
       E::invalid_argument, "no 'datatype'"},
      {"no shape", R"({"inputs":[{"name":"x","datatype":"INT32","data":[1]}]})", "",
       E::invalid_argument, "no 'shape'"},
      {"no data", R"({"inputs":[{"name":"x","datatype":"INT32","shape":[1]}]})", "",
       E::invalid_argument, "neither"},
      {"unknown input", R"({"inputs":[{"name":"X","datatype":"INT32","shape":[1],"data":[1]}]})",
       "", E::invalid_argument, "unexpected inference input 'X'"},
      {"input twice",
       R"({"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[1]},{"name":"x","datatype":"INT32","shape":[1],"data":[1]}]})",
       "", E::invalid_argument, "twice"},
      {"unknown datatype", in("INT33", "[1]", "[1]"), "", E::dtype_unsupported,
       "unknown datatype 'INT33'"},
      {"wrong datatype", in("FP32", "[1]", "[1]"), "", E::dtype_unsupported,
       "has data-type INT32, got FP32"},
      {"name is a number", R"({"inputs":[{"name":1}]})", "", E::parse, "expected a string"},
      {"shape is a number", in("INT32", "2", "[1,2]"), "", E::parse, "expected '['"},
      {"shape with a fraction", in("INT32", "[2.0]", "[1,2]"), "", E::parse, "expected an integer"},
      {"negative dimension", in("INT32", "[-1]", "[1]"), "", E::shape_mismatch,
       "negative dimension"},
      {"huge dimension", in("INT32", "[9223372036854775808]", "[1]"), "", E::parse,
       "expected an integer"},
      {"wrong rank", in("INT32", "[1,2]", "[1,2]"), "", E::shape_mismatch,
       "Expected [-1], got [1,2]"},
      {"rank 17", in("INT32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[1]"), "", E::parse,
       "more than 16"},
      {"shape of 2^62", in("INT32", "[4611686018427387904]", "[1]"), "", E::shape_mismatch,
       "fewer elements"},
      {"too few", in("INT32", "[3]", "[1,2]"), "", E::parse,
       "list of 2 entries where the shape says 3"},
      {"too many", in("INT32", "[1]", "[1,2]"), "", E::parse, "more than the shape's 1"},
      {"nested where flat", in("INT32", "[2]", "[[1,2]]"), "", E::parse, "expected a number"},
      {"a lone value for two", in("INT32", "[2]", "100"), "", E::parse, "expected a list"},
      {"empty for two", in("INT32", "[2]", "[]"), "", E::parse, "list of 0 entries where"},
      {"data and binary",
       R"({"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[1],"parameters":{"binary_data_size":4}}]})",
       raw<int>({1}), E::invalid_argument, "both"},
      {"binary without header", binary("8"), "", E::invalid_argument, "only 0 bytes are left"},
      {"binary too short", binary("8"), "1234", E::invalid_argument, "only 4 bytes are left"},
      {"binary with rest", binary("8"), "123456789", E::invalid_argument,
       "unexpected additional input data"},
      {"binary size against shape", binary("4"), "1234", E::shape_mismatch, "4 raw bytes"},
      {"binary size not whole", binary("7"), "1234567", E::shape_mismatch, "7 raw bytes"},
      {"binary size negative", binary("-8"), "12345678", E::parse,
       "expected an integer of at least 0"},
      {"binary size 2^64", binary("18446744073709551616"), "12345678", E::parse,
       "expected an integer of at least 0"},
      {"binary size 2^64-1", binary("18446744073709551615"), "12345678", E::invalid_argument,
       "only 8 bytes are left"},
      {"binary size a string", binary("\"8\""), "12345678", E::parse, "expected a number"},
      {"shape times size wraps to 0", binary("0", "[4611686018427387904]"), "", E::shape_mismatch,
       "0 raw bytes", "*"},
      {"header size beyond the body", good, "", E::invalid_argument,
       "Inference-Header-Content-Length", "99999"},
      {"header size negative", good, "", E::invalid_argument, "Inference-Header-Content-Length",
       "-1"},
      {"header size not a number", good, "", E::invalid_argument, "Inference-Header-Content-Length",
       "ten"},
      {"header size with text behind", good, "", E::invalid_argument,
       "Inference-Header-Content-Length", "10x"},
      {"header size 2^64", good, "", E::invalid_argument, "Inference-Header-Content-Length",
       "18446744073709551616"},
      {"header cuts the JSON", good, "", E::parse, "", "10"},
      {"raw body of a wrong size", "12345", "", E::shape_mismatch, "5 raw bytes", "0"},
      {"shared memory",
       R"({"inputs":[{"name":"x","datatype":"INT32","shape":[1],"parameters":{"shared_memory_region":"r"}}]})",
       "", E::unsupported, "shared memory"},
      {"unknown output", with(R"("outputs":[{"name":"Y"}])"), "", E::invalid_argument,
       "unexpected inference output 'Y'"},
      {"output twice", with(R"("outputs":[{"name":"y"},{"name":"y"}])"), "", E::invalid_argument,
       "more outputs"},
      {"output without name", with(R"("outputs":[{}])"), "", E::invalid_argument, "no 'name'"},
      {"outputs not a list", with(R"("outputs":"y")"), "", E::parse, "expected '['"},
      {"binary_data not a bool", with(R"("outputs":[{"name":"y","parameters":{"binary_data":1}}])"),
       "", E::parse, "expected true or false"},
      {"classification negative",
       with(R"("outputs":[{"name":"y","parameters":{"classification":-1}}])"), "", E::parse,
       "at least 0"},
      {"binary_data_output not a bool", with(R"("parameters":{"binary_data_output":"yes"})"), "",
       E::parse, "expected true or false"},
      {"timeout not a number", with(R"("parameters":{"timeout":"soon"})"), "", E::parse,
       "expected a number"},
      {"parameters a list", with(R"("parameters":[])"), "", E::parse, "expected '{'"},
      {"id a number", with(R"("id":5)"), "", E::parse, "expected a string"},
      {"bad value in an unknown member", with(R"("extra":tru)"), "", E::parse,
       "expected true or false"},
      {"bad word in an unknown member", with(R"("extra":nul)"), "", E::parse, "expected a value"},
  };
  const ModelInfo info = one_input(DataType::i32);
  for (const BadRequest& c : cases) {
    SCOPED_TRACE(c.what);
    std::string size = c.json_size;
    if (size == "*" || (size.empty() && !c.tail.empty())) size = std::to_string(c.json.size());
    const auto [code, message] =
        error_of([&] { parse_infer(info, body_of(c.json + c.tail), {.json_size = size}); });
    EXPECT_EQ(name(code), name(c.code)) << message;
    EXPECT_NE(message.find(c.says), std::string::npos) << message;
    EXPECT_LT(message.size(), 600u);
  }
}

TEST(ProtocolParse, BadValuesOfOtherDatatypesAreRefused) {
  struct Case {
    DataType type;
    std::string data;
  };
  for (const Case& c : std::vector<Case>{{DataType::boolean, "[2]"},
                                         {DataType::boolean, "[1.0]"},
                                         {DataType::boolean, "[\"true\"]"},
                                         {DataType::boolean, "[NaN]"},
                                         {DataType::u8, "[256]"},
                                         {DataType::u8, "[-1]"},
                                         {DataType::i8, "[128]"},
                                         {DataType::i8, "[-129]"},
                                         {DataType::u64, "[18446744073709551616]"},
                                         {DataType::i64, "[9223372036854775808]"},
                                         {DataType::i64, "[1e300]"},
                                         {DataType::f32, "[1e39]"},
                                         {DataType::f32, "[\"1\"]"},
                                         {DataType::f32, "[\"nan\"]"},
                                         {DataType::f32, "[true]"},
                                         {DataType::f64, "[1e400]"},
                                         {DataType::f16, "[65536]"},
                                         {DataType::bf16, "[3.4e38999]"},
                                         {DataType::bytes, "[1]"},
                                         {DataType::bytes, "[[\"a\"]]"},
                                         {DataType::bytes, "\"a\",1"}}) {
    const auto [code, message] =
        error_of([&] { parse_json(one_input(c.type), input_json(name(c.type), "[1]", c.data)); });
    EXPECT_EQ(name(code), name(ErrorCode::parse))
        << name(c.type) << " " << c.data << ": " << message;
  }
}

TEST(ProtocolParse, BadNestingIsRefused) {
  for (const char* data :
       {"[[1,2],[3]]", "[[1,2,3],[4]]", "[[1,2]]", "[[1,2],[3,4],[5,6]]", "[[[1,2],[3,4]]]",
        "[1,[2,3,4]]", "[[1,2],3,4]", "[1,2,3]", "[1,2,3,4,5]"}) {
    const auto [code, message] = error_of([&] {
      parse_json(one_input(DataType::i32, {-1, 2}), input_json("INT32", "[2,2]", data));
    });
    EXPECT_EQ(name(code), name(ErrorCode::parse)) << data << ": " << message;
    EXPECT_NE(message.find("data of input 'x'"), std::string::npos) << message;
  }
}

TEST(ProtocolParse, BinaryBytesMustHoldExactlyTheirElements) {
  const auto parse = [](std::string tail, std::string shape) {
    parse_binary(one_input(DataType::bytes),
                 R"({"inputs":[{"name":"x","datatype":"BYTES","shape":)" + shape +
                     R"(,"parameters":{"binary_data_size":)" + std::to_string(tail.size()) + "}}]}",
                 tail);
  };
  EXPECT_NO_THROW(parse(packed({"ab", "", "c"}), "[3]"));
  for (const auto& [tail, shape] : std::vector<std::pair<std::string, std::string>>{
           {packed({"ab", "c"}), "[3]"},
           {packed({"ab", "c"}), "[1]"},
           {packed({"ab"}) + "x", "[1]"},
           {raw<uint32_t>({0xFFFFFFFF}) + "abc", "[1]"},
           {"ab", "[1]"},
           {packed({"abcd"}).substr(0, 7), "[1]"},
           {packed({"ab"}), "[0]"},
           {packed({"ab"}), "[9223372036854775807]"}}) {
    const auto [code, message] = error_of([&, t = tail, s = shape] { parse(t, s); });
    EXPECT_EQ(name(code), name(ErrorCode::invalid_argument)) << message;
  }
}

TEST(ProtocolParse, BinaryBoolMustBeZeroOrOne) {
  const auto [code, message] = error_of([] {
    parse_binary(
        one_input(DataType::boolean),
        R"({"inputs":[{"name":"x","datatype":"BOOL","shape":[2],"parameters":{"binary_data_size":2}}]})",
        std::string("\x01\x02", 2));
  });
  EXPECT_NE(message.find("other than 0 and 1"), std::string::npos) << message;
  EXPECT_EQ(name(code), name(ErrorCode::invalid_argument));
}

TEST(ProtocolParse, BatchesBeyondTheModelsOrUnequalOnesAreRefused) {
  const ModelInfo info = testing::add_model()->info();
  const auto input = [](const char* name, int64_t batch) {
    return Json{{"name", name},
                {"datatype", "FP32"},
                {"shape", {batch, 4}},
                {"data", std::vector<int>(size_t(4 * batch))}};
  };
  const auto request = [&](int64_t a, int64_t b) {
    return Json{{"inputs", {input("a", a), input("b", b)}}}.dump();
  };
  EXPECT_NO_THROW(parse_json(info, request(64, 64)));
  EXPECT_NE(error_of([&] { parse_json(info, request(65, 65)); }).second.find("at most 64"),
            std::string::npos);
  EXPECT_NE(error_of([&] { parse_json(info, request(2, 3)); }).second.find("has batch 3"),
            std::string::npos);
}

TEST(ProtocolParse, RawBodiesThatSayTooLittleAreRefused) {
  EXPECT_NE(error_of([] {
              parse_infer(testing::add_model()->info(), body_of("x"), {.json_size = "0"});
            }).second.find("one input"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              parse_infer(one_input(DataType::f32, {-1, -1}), body_of("1234"), {.json_size = "0"});
            }).second.find("does not say"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              parse_infer(one_input(DataType::f32), body_of("x"), {.content_type = "image/png"});
            }).second.find("no encoded pictures"),
            std::string::npos);
}

// ---- answers
// --------------------------------------------------------------------------------------

TEST(ProtocolWrite, AnswersAreValidJsonWithShortestNumbers) {
  ModelInfo info = one_input(DataType::f32);
  InferRequest request{.id = "a\"b\\\n\x01", .outputs = {{.index = 0}}};
  const std::vector<Blob> out{
      Blob::of<float>(DataType::f32, {4}, {0.1f, -0.f, 1e-45f, 3.4028235e38f})};
  const InferAnswer answer = write_infer(info, request, out);
  EXPECT_TRUE(answer.binary.empty());
  const Json json = Json::parse(answer.json);
  EXPECT_EQ(json["id"], request.id);
  EXPECT_EQ(json["model_name"], "echo");
  EXPECT_EQ(json["model_version"], "1");
  EXPECT_EQ(json["outputs"][0]["name"], "y");
  EXPECT_EQ(json["outputs"][0]["datatype"], "FP32");
  EXPECT_EQ(json["outputs"][0]["shape"], Json::array({4}));
  EXPECT_NE(answer.json.find("\"data\":[0.1,-0,1e-45,3.4028235e+38]"), std::string::npos)
      << answer.json;
}

TEST(ProtocolWrite, NotANumberAndInfinityAreWrittenAsStringsAndReadBack) {
  const ModelInfo info = one_input(DataType::f32);
  const std::vector<Blob> out{Blob::of<float>(DataType::f32, {3}, {NAN, INFINITY, -INFINITY})};
  const Json json = Json::parse(write_infer(info, {.outputs = {{.index = 0}}}, out).json);
  EXPECT_EQ(json["outputs"][0]["data"], Json::array({"NaN", "Infinity", "-Infinity"}));
  const auto back = values<float>(
      parse_json(info, input_json("FP32", "[3]", json["outputs"][0]["data"].dump())).inputs[0]);
  EXPECT_TRUE(std::isnan(back[0]));
  EXPECT_EQ(back[1], INFINITY);
}

TEST(ProtocolWrite, BinaryOutputsFollowTheJsonInOrder) {
  ModelInfo info = one_input(DataType::i32);
  info.outputs.push_back({"z", DataType::bytes, {-1}});
  const std::string text[] = {"ab", "\xFF"};
  const std::vector<Blob> out{Blob::of<int32_t>(DataType::i32, {2}, {7, 8}), bytes_blob({2}, text)};
  const InferAnswer answer =
      write_infer(info, {.outputs = {{.index = 1, .binary = true}, {.index = 0}}}, out);
  const Json json = Json::parse(answer.json);
  EXPECT_EQ(json["outputs"][0]["parameters"]["binary_data_size"], 11);
  EXPECT_EQ(json["outputs"][1]["data"], Json::array({7, 8}));
  ASSERT_EQ(answer.binary.size(), 1u);
  EXPECT_EQ(answer.binary[0].bytes.data(), out[1].bytes.data());
}

TEST(ProtocolWrite, BytesThatAreNotTextCannotBeJson) {
  ModelInfo info = one_input(DataType::bytes);
  const std::string text[] = {"\xFF"};
  const std::vector<Blob> out{bytes_blob({1}, text)};
  EXPECT_NE(error_of([&] {
              write_infer(info, {.outputs = {{.index = 0}}}, out);
            }).second.find("not UTF-8"),
            std::string::npos);
}

TEST(ProtocolWrite, EveryDatatypeGoesOutAndComesBackTheSame) {
  for (int t = 0; t < int(DataType::bytes); ++t) {
    const DataType type = DataType(t);
    const ModelInfo info = one_input(type);
    const Blob in =
        parse_json(info, input_json(name(type), "[2]",
                                    type == DataType::boolean ? "[true,false]" : "[1,100]"))
            .inputs[0];
    const Json json =
        Json::parse(write_infer(info, {.outputs = {{.index = 0}}}, std::vector{in}).json);
    const Blob back =
        parse_json(info, input_json(name(type), "[2]", json["outputs"][0]["data"].dump()))
            .inputs[0];
    EXPECT_TRUE(std::ranges::equal(in.bytes, back.bytes)) << name(type);
  }
}

TEST(ProtocolWrite, ClassificationNamesTheHighestEntriesOfEachBatchElement) {
  const ModelInfo info = testing::add_model()->info();
  const std::vector<Blob> out{Blob::of<float>(DataType::f32, {2, 4}, {1, NAN, 3, 2, 5, 5, -1, 0})};
  const Json json =
      Json::parse(write_infer(info, {.outputs = {{.index = 0, .classes = 2}}}, out).json);
  EXPECT_EQ(json["outputs"][0]["datatype"], "BYTES");
  EXPECT_EQ(json["outputs"][0]["shape"], Json::array({2, 2}));
  EXPECT_EQ(json["outputs"][0]["data"],
            Json::array({"3:2:south", "2:3:west", "5:0:north", "5:1:east"}));
  const Json all =
      Json::parse(write_infer(info, {.outputs = {{.index = 0, .classes = 99}}}, out).json);
  EXPECT_EQ(all["outputs"][0]["shape"], Json::array({2, 4}));
  EXPECT_EQ(all["outputs"][0]["data"][3], "NaN:1:east");
}

TEST(ProtocolWrite, MetadataAndConfigDescribeTheModel) {
  const ModelInfo info = testing::picture_model()->info();
  const std::string versions[] = {"1", "3"};
  EXPECT_EQ(Json::parse(metadata_json(info, versions)),
            Json::parse(R"({"name":"picture","versions":["1","3"],"platform":"test",
      "inputs":[{"name":"image","datatype":"FP32","shape":[-1,1,2,2]}],"outputs":[{"name":"mean","datatype":"FP32","shape":[-1]}]})"));
  const Json config = Json::parse(config_json(info));
  EXPECT_EQ(config["max_batch_size"], 16);
  EXPECT_EQ(config["input"][0],
            Json::parse(R"({"name":"image","data_type":"TYPE_FP32","dims":[1,2,2]})"));
}

TEST(ProtocolWrite, ErrorsAreJsonWhateverBytesTheyQuote) {
  EXPECT_EQ(Json::parse(error_json("bad \xFF \"name\""))["error"], "bad \xEF\xBF\xBD \"name\"");
}

// ---- models that are wrong themselves
// -------------------------------------------------------------

TEST(ServeEngine, AModelThatBreaksItsPromiseIsOurFaultNotTheClients) {
  const auto run_with = [](std::vector<Blob> outputs) {
    ModelInfo info = one_input(DataType::f32, {-1, 2});
    testing::FunctionModel model(info, [&](std::span<const Blob>) { return outputs; });
    return run(model, {});
  };
  EXPECT_NO_THROW(run_with({Blob::of<float>(DataType::f32, {1, 2}, {1, 2})}));
  Blob short_one = Blob::of<float>(DataType::f32, {1, 2}, {1, 2});
  short_one.bytes = short_one.bytes.first(4);
  for (const auto& outputs :
       std::vector<std::vector<Blob>>{{},
                                      {Blob::of<float>(DataType::f32, {2}, {1, 2})},
                                      {Blob::of<int>(DataType::i32, {1, 2}, {1, 2})},
                                      {short_one}})
    EXPECT_EQ(name(error_of([&] { run_with(outputs); }).first), name(ErrorCode::internal));
}

TEST(ServeEngine, AModelThatCannotBeServedIsRefusedWhenItIsAdded) {
  const auto refused = [](auto&& change) {
    ModelInfo info = testing::add_model()->info();
    change(info);
    return error_of([&] { check_info(info); }).first == ErrorCode::invalid_argument;
  };
  EXPECT_NO_THROW(check_info(testing::add_model()->info()));
  EXPECT_TRUE(refused([](ModelInfo& m) { m.name = ""; }));
  EXPECT_TRUE(refused([](ModelInfo& m) { m.name = "a/b"; }));
  EXPECT_TRUE(refused([](ModelInfo& m) { m.version = "1.0"; }));
  EXPECT_TRUE(refused([](ModelInfo& m) { m.version = ""; }));
  EXPECT_TRUE(refused([](ModelInfo& m) { m.inputs.clear(); }));
  EXPECT_TRUE(refused([](ModelInfo& m) { m.inputs[1].name = "a"; }));
  EXPECT_TRUE(refused([](ModelInfo& m) { m.inputs[0].shape = {-2, 4}; }));
  EXPECT_TRUE(refused([](ModelInfo& m) { m.outputs[0].shape = {1, 4}; }));
}

}  // namespace
}  // namespace cairn::serve
