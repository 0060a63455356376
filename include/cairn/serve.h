// SPDX-License-Identifier: Apache-2.0
// Serving: what a ready model offers, and the server that answers for it (KServe/Triton v2, HTTP).
#pragma once
#include <cairn/error.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn::serve {

// Element types of the protocol. `bytes` is a string of any length; the others are little-endian.
enum class DataType : uint8_t {
  boolean,
  u8,
  u16,
  u32,
  u64,
  i8,
  i16,
  i32,
  i64,
  f16,
  bf16,
  f32,
  f64,
  bytes
};
CAIRN_API std::string_view name(
    DataType type);  // as the protocol spells it: "BOOL", "FP32", "BYTES"
CAIRN_API std::optional<DataType> datatype(std::string_view name);
CAIRN_API size_t item_size(DataType type);  // bytes of one element; 0 for `bytes`

// The number of elements of a shape; throws shape_mismatch for a negative dimension or an overflow.
CAIRN_API int64_t element_count(std::span<const int64_t> shape);

// A tensor between the network and a model: packed, row-major, read-only, kept alive by its owner.
// `bytes` is aligned to the element size at least. For DataType::bytes it is the elements one after
// the other, each a 4-byte little-endian length and then that many bytes.
struct Blob {
  DataType datatype = DataType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;

  // The elements as numbers; T must be of the datatype's size.
  template <class T>
  std::span<const T> as() const {
    CAIRN_CHECK(sizeof(T) == item_size(datatype), "serve: a tensor is read as the wrong type");
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  // A tensor that owns the values; there must be as many as the shape says.
  template <class T>
  static Blob of(DataType datatype, std::vector<int64_t> shape, std::vector<T> values) {
    CAIRN_CHECK(sizeof(T) == item_size(datatype) && int64_t(values.size()) == element_count(shape),
                "serve: values do not fit the datatype or the shape");
    auto owner = std::make_shared<const std::vector<T>>(std::move(values));
    return {datatype, std::move(shape), std::as_bytes(std::span(*owner)), owner};
  }
};

// The elements of a DataType::bytes tensor, as views into it, and the way back.
CAIRN_API std::vector<std::string_view> strings(const Blob& blob);
CAIRN_API Blob bytes_blob(std::vector<int64_t> shape, std::span<const std::string> elements);

struct TensorInfo {
  std::string name;
  DataType datatype = DataType::f32;
  std::vector<int64_t> shape;       // -1: any size
  bool picture = false;             // an input that takes encoded pictures, BYTES [n], as well
  std::vector<std::string> labels;  // of an output: what its last dimension's entries are called
};

struct ModelInfo {
  std::string name;
  std::string version = "1";  // digits
  std::string platform = "onnx";
  std::vector<TensorInfo> inputs, outputs;
  int64_t max_batch = 0;  // > 0: the first dimension of every tensor is the batch, at most this
};

// A model that is loaded and ready to answer.
class CAIRN_API Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const noexcept = 0;  // never changes

  // `inputs` are all the declared ones, in that order, checked against info(); a picture input may
  // come as BYTES [n]. Gives all the declared outputs in order. Called from several threads at
  // once, each with thread_count() 1: good for decoding; a model hands computing to a thread of its
  // own, which owns its compute threads. Throws cairn::Error: `internal` and `io` become 500,
  // `out_of_memory`, `timeout` and `cancelled` 503, `unsupported` 501, `not_found` 404, the rest 400:
  // the client's mistake.
  virtual std::vector<Blob> infer(std::span<const Blob> inputs) = 0;
};

struct EngineOptions {
  int threads = 0;         // compute threads; 0: every usable core
  int64_t max_batch = 32;  // most rows in a request; one with more is refused (400)
  std::string version = "1";
};
// A model.onnx made ready: compiled for this machine. When its metadata tell how pictures become inputs, its
// picture input takes encoded JPEG and PNG bytes too. throws as onnx::Model::read does.
CAIRN_API std::shared_ptr<Model> load_onnx(const std::string& name, const std::string& path,
                                           const EngineOptions& options = {});

struct ServerOptions {
  std::string address = "127.0.0.1";  // "0.0.0.0" or "::" to be reached from other machines
  uint16_t port = 8000;               // 0: any free port; Server::port() tells which
  int io_threads = 1;                 // sockets and header parsing
  int workers = 2;                    // reading tensors, Model::infer, writing answers
  size_t max_queue = 256;             // inferences waiting for a worker; more are refused (503)
  size_t max_connections = 512;       // beyond, those waiting longest for a request are closed
  size_t max_header = 16 << 10;       // bytes
  size_t max_body = 64 << 20;         // bytes, also after decompression
  size_t max_memory = 1 << 30;        // bytes of all bodies being held
  std::chrono::milliseconds idle_timeout{75'000};  // between requests
  std::chrono::milliseconds header_timeout{
      10'000};  // from a request's first byte to its header's last
  std::chrono::milliseconds body_timeout{20'000};  // for a body or an answer, and as much again
  size_t min_rate = 16 << 10;                      // as this rate (bytes a second) allows
};

// Serves models until stopped. All functions may be called from any thread.
//   GET  /v2 · /v2/health/live · /v2/health/ready · /v2/models/M[/versions/V][/ready|/config] ·
//   /metrics POST /v2/models/M[/versions/V]/infer
class CAIRN_API Server {
 public:
  explicit Server(ServerOptions options = {});
  Server(const Server&) = delete;
  ~Server();  // stops at once

  // Without a version in the request, the highest one answers. Throws for a bad or a second
  // name/version.
  void add(std::shared_ptr<Model> model);

  // Binds and begins to answer; throws io when the address cannot be had.
  void start();
  uint16_t port() const;

  // Ready turns false, no new work is accepted, requests under way are answered within `grace`;
  // then all is closed. Returns when that is done and no model is at work. A second call may
  // shorten the grace. Not for signal handlers: wait for signals in a thread (sigwait) and call it
  // there.
  void stop(std::chrono::milliseconds grace = std::chrono::seconds(30));

  // Returns when the server has stopped.
  void wait();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn::serve
