// SPDX-License-Identifier: Apache-2.0
// The server on a loopback socket, asked by a client that shares none of its code and can
// misbehave.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "serve/test_models.h"

namespace cairn::serve {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

struct Reply {
  int status = 0;                              // 0: the connection closed before a whole answer
  std::map<std::string, std::string> headers;  // names in small letters
  std::string body;
  Json json() const { return Json::parse(body); }
  std::string error() const { return json().at("error"); }
};

class Client {
 public:
  explicit Client(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    set_nagle(false);
  }
  void set_nagle(bool on) {
    const int no_delay = !on;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof no_delay);
  }
  Client(Client&& other) : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  ~Client() { close(); }
  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void reset() {  // close with RST instead of FIN
    const linger hard{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      text.remove_prefix(size_t(n));
    }
    return true;
  }
  // One whole answer, of `method`.
  Reply read(std::string_view method = "GET") {
    size_t end;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos)
      if (!fill()) return {};
    Reply reply;
    const std::string head = buffer_.substr(0, end + 2);
    buffer_.erase(0, end + 4);
    EXPECT_TRUE(head.starts_with("HTTP/1.1 "));
    const int status = std::stoi(head.substr(9, 3));
    for (size_t at = head.find("\r\n") + 2; at < head.size(); at = head.find("\r\n", at) + 2) {
      const size_t colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      std::ranges::transform(name, name.begin(), [](char c) { return char(std::tolower(c)); });
      reply.headers[name] = head.substr(colon + 2, head.find("\r\n", at) - colon - 2);
    }
    if (status == 100) return reply.status = 100, reply;
    const size_t length = method == "HEAD" ? 0 : std::stoul(reply.headers.at("content-length"));
    while (buffer_.size() < length)
      if (!fill()) return {};
    reply.body = buffer_.substr(0, length);
    buffer_.erase(0, length);
    reply.status = status;
    return reply;
  }
  Reply ask(std::string_view request) {
    send(request);
    return read(request.substr(0, request.find(' ')));
  }
  // The other side closes within `time`, sending nothing more.
  bool closes_within(std::chrono::milliseconds time) {
    pollfd p{fd_, POLLIN, 0};
    char c;
    return buffer_.empty() && ::poll(&p, 1, int(time.count())) == 1 && ::recv(fd_, &c, 1, 0) <= 0;
  }

 private:
  bool fill() {
    pollfd p{fd_, POLLIN, 0};
    char bytes[1 << 16];
    if (::poll(&p, 1, 30'000) != 1) return ADD_FAILURE() << "no answer in 30 s", false;
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
    if (n > 0) buffer_.append(bytes, size_t(n));
    return n > 0;
  }
  int fd_;
  bool connected_;
  std::string buffer_;
};

std::string get(std::string_view path) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: t\r\n\r\n", path);
}
std::string post(std::string_view path, std::string_view body, std::string_view headers = {}) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n{}\r\n{}", path,
                     body.size(), headers, body);
}
std::string gate_request(int x) {
  return post(
      "/v2/models/gate/infer",
      fmt::format(R"({{"inputs":[{{"name":"x","datatype":"INT32","shape":[1],"data":[{}]}}]}})",
                  x));
}
std::string add_json(float a, float b) {
  return fmt::format(
      R"({{"inputs":[{{"name":"a","datatype":"FP32","shape":[1,4],"data":[{0},{0},{0},{0}]}},)"
      R"({{"name":"b","datatype":"FP32","shape":[1,4],"data":[{1},{1},{1},{1}]}}]}})",
      a, b);
}

// A server with the test models and a gate; it runs from the beginning of each test.
class Serve : public ::testing::Test {
 protected:
  void start(ServerOptions options = {}) {
    options.port = 0;
    server.emplace(options);
    server->add(testing::add_model());
    server->add(testing::picture_model());
    server->add(gate);
    for (const auto& model : testing::echo_models()) server->add(model);
    server->start();
  }
  void TearDown() override { gate->open(); }
  Client client() const { return Client(server->port()); }
  Reply ask(std::string_view request) const { return client().ask(request); }

  std::shared_ptr<testing::GateModel> gate = std::make_shared<testing::GateModel>();
  std::optional<Server> server;
};

TEST_F(Serve, HealthMetadataAndConfigAnswer) {
  start();
  Client c = client();
  EXPECT_EQ(c.ask(get("/v2/health/live")).json(), (Json{{"live", true}}));
  EXPECT_EQ(c.ask(get("/v2/health/ready")).json(), (Json{{"ready", true}}));
  EXPECT_EQ(c.ask(get("/v2")).json()["name"], "cairn");
  EXPECT_EQ(c.ask(get("/v2/models/add")).json()["inputs"][1]["name"], "b");
  EXPECT_EQ(c.ask(get("/v2/models/add/versions/1")).json()["versions"], Json::array({"1"}));
  EXPECT_EQ(c.ask(get("/v2/models/add/ready")).status, 200);
  EXPECT_EQ(c.ask(get("/v2/models/add/versions/1/config?x=1")).json()["max_batch_size"], 64);
}

TEST_F(Serve, InferAnswersInJsonAndInBinary) {
  start();
  Client c = client();
  const Reply text = c.ask(post("/v2/models/add/infer", add_json(1.5, 2)));
  ASSERT_EQ(text.status, 200) << text.body;
  EXPECT_EQ(text.json()["outputs"][0]["data"], Json::array({3.5, 3.5, 3.5, 3.5}));
  EXPECT_EQ(text.headers.at("content-type"), "application/json");
  EXPECT_FALSE(text.headers.contains("inference-header-content-length"));

  const std::string json =
      R"({"id":"7","parameters":{"binary_data_output":true},"inputs":[)"
      R"({"name":"a","datatype":"FP32","shape":[1,4],"parameters":{"binary_data_size":16}},)"
      R"({"name":"b","datatype":"FP32","shape":[1,4],"parameters":{"binary_data_size":16}}]})";
  const float ab[8] = {1, 2, 3, 4, 10, 20, 30, 40};
  const Reply raw = c.ask(post(
      "/v2/models/add/versions/1/infer", json + std::string(reinterpret_cast<const char*>(ab), 32),
      fmt::format("Inference-Header-Content-Length: {}\r\n", json.size())));
  ASSERT_EQ(raw.status, 200) << raw.body;
  const size_t header = std::stoul(raw.headers.at("inference-header-content-length"));
  EXPECT_EQ(Json::parse(raw.body.substr(0, header))["id"], "7");
  ASSERT_EQ(raw.body.size(), header + 16);
  float sum[4];
  std::memcpy(sum, raw.body.data() + header, 16);
  EXPECT_EQ(std::vector<float>(sum, sum + 4), (std::vector<float>{11, 22, 33, 44}));
}

TEST_F(Serve, AnEncodedPictureIsAskedWithOneCurlAndAnsweredInJson) {
  start();
  const Reply r =
      ask(post("/v2/models/picture/infer", "\xFF\xD8\xFF-jpeg", "Content-Type: image/jpeg\r\n"));
  EXPECT_EQ(r.json()["outputs"][0]["data"], Json::array({8})) << r.body;
}

TEST_F(Serve, TheFirstBinaryTensorIsHandedOverAlignedAndWithoutACopy) {
  std::vector<uintptr_t> addresses;
  ModelInfo info = testing::echo_model("where", DataType::f32)->info();
  start();
  server->add(std::make_shared<testing::FunctionModel>(info, [&](std::span<const Blob> in) {
    addresses.push_back(reinterpret_cast<uintptr_t>(in[0].bytes.data()));
    return std::vector<Blob>(in.begin(), in.end());
  }));
  for (const size_t pad : {0, 1, 2, 3, 50}) {
    const std::string json =
        R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8}}]})" +
        std::string(pad, ' ');
    EXPECT_EQ(ask(post("/v2/models/where/infer", json + "12345678",
                       fmt::format("inference-header-content-length: {}\r\n", json.size())))
                  .status,
              200);
    ASSERT_FALSE(addresses.empty());
    EXPECT_EQ(addresses.back() % 64, 0u);
  }
}

TEST_F(Serve, AConnectionServesManyRequestsAlsoWhenTheyAreSentAhead) {
  start();
  Client c = client();
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(
        c.ask(post("/v2/models/add/infer", add_json(float(i), 1))).json()["outputs"][0]["data"][0],
        i + 1);
  c.send(get("/v2/health/live") + post("/v2/models/add/infer", add_json(1, 1)) + get("/v2"));
  EXPECT_EQ(c.read().json(), (Json{{"live", true}}));
  EXPECT_EQ(c.read().json()["model_name"], "add");
  EXPECT_EQ(c.read().json()["name"], "cairn");
  EXPECT_EQ(
      c.ask("GET /v2 HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").headers.at("connection"),
      "close");
  EXPECT_TRUE(c.closes_within(5s));
}

TEST_F(Serve, ManyClientsAtOnceEachGetTheirOwnAnswer) {
  start({.io_threads = 2, .workers = 3});
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      Client c = client();
      for (int i = 0; i < 50; ++i) {
        const Reply r = c.ask(post("/v2/models/add/infer", add_json(float(t * 1000), float(i))));
        good += r.status == 200 &&
                r.json()["outputs"][0]["data"] ==
                    Json::array({t * 1000 + i, t * 1000 + i, t * 1000 + i, t * 1000 + i});
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(good, 400);
}

TEST_F(Serve, MistakesGetTheRightStatusAndAJsonError) {
  start({.max_body = 1000});
  struct Case {
    std::string request;
    int status;
    std::string says;
  };
  const std::string infer = "/v2/models/add/infer";
  for (const Case& c : std::vector<Case>{
           {get("/"), 404, "unknown path '/'"},
           {get("/v3"), 404, "unknown path"},
           {get("/v2/models/add/versions"), 404, "unknown path"},
           {get("/v2/models/add/nonsense"), 404, "unknown path"},
           {get("/v2/models/%zz"), 404, "unknown path"},
           {get("/v2/models/a/b/c/d/e/f/g/h"), 404, "unknown path"},
           {get("/v2/" + std::string(3000, 'x')), 404, "unknown path"},
           {get("/v2/models/%00%ff%22"), 404, "unknown model"},
           {get("/v2/models/nobody"), 404,
            "Request for unknown model: 'nobody' is not found. This server has add"},
           {get("/v2/models/add/versions/2"), 404, "version '2' is not found"},
           {get("/v2/models/add/versions/x"), 404, "version 'x' is not found"},
           {get("/v2/models/add/versions/99999999999999999999"), 404, "is not found"},
           {post("/v2/models/nobody/infer", "{}"), 404, "unknown model"},
           {get(infer), 405, "expected POST"},
           {post("/v2", "{}"), 405, "expected GET"},
           {"DELETE /v2/models/add HTTP/1.1\r\nHost: t\r\n\r\n", 405, "expected GET"},
           {"BREW /v2 HTTP/1.1\r\nHost: t\r\n\r\n", 405, "'BREW'"},
           {post(infer, ""), 400, "expected '{'"},
           {post(infer, "{"), 400, "expected"},
           {post(infer, "{}"), 400, "missing 'a'"},
           {post(infer, add_json(1, 2), "Inference-Header-Content-Length: 5000\r\n"), 400,
            "Inference-Header-Content-Length"},
           {post(infer, std::string(1001, ' ')), 413, "larger than 1000 bytes"},
           {"POST " + infer + " HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999999\r\n\r\n", 413,
            "larger than 1000 bytes"},
           {post(infer, "x", "Content-Encoding: br\r\n"), 501, "unknown Content-Encoding 'br'"},
           {post(infer, "x", "Content-Encoding: gzip\r\n"), 400,
            "not whole, valid compressed data"},
           {post(infer, "{}", "Expect: miracles\r\n"), 417, "100-continue"},
           {"nonsense\r\n\r\n", 400, "not a valid HTTP request"},
           {"GET /v2 HTTP/7.0\r\n\r\n", 400, "not a valid HTTP request"},
           {"GET /v2 HTTP/1.1\r\nno colon\r\n\r\n", 400, "not a valid HTTP request"},
           {"POST " + infer + " HTTP/1.1\r\nContent-Length: ten\r\n\r\n", 400,
            "not a valid HTTP request"},
           {"POST " + infer + " HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400,
            "not a valid HTTP request"},
           {"POST " + infer + " HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400,
            "not a valid HTTP request"},
           {"POST " + infer +
                " HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400, "not a valid HTTP request"},
           {"POST " + infer + " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400,
            "not a valid HTTP request"},
           {"POST " + infer +
                " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
            400, "not a valid HTTP request"},
           {"GET /v2 HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n", 431,
            "header is larger"},
       }) {
    SCOPED_TRACE(c.request.substr(0, 120));
    const Reply r = ask(c.request);
    ASSERT_EQ(r.status, c.status) << r.body;
    EXPECT_EQ(r.headers.at("content-type"), "application/json");
    EXPECT_NE(r.error().find(c.says), std::string::npos) << r.body;
  }
  EXPECT_EQ(ask(get(infer)).headers.at("allow"), "POST");
  EXPECT_EQ(ask(get("/v2/health/live")).status, 200);
}

TEST_F(Serve, HeadAndOldHttpAreAnsweredAsTheyExpect) {
  start();
  Client c = client();
  EXPECT_EQ(c.ask("HEAD /v2 HTTP/1.1\r\nHost: t\r\n\r\n").status, 200);
  EXPECT_EQ(c.ask(get("/v2/health/live")).json(),
            (Json{{"live", true}}));  // no body was in between
  Client old = client();
  EXPECT_EQ(old.ask("GET /v2 HTTP/1.0\r\n\r\n").status, 200);
  EXPECT_TRUE(old.closes_within(5s));
}

TEST_F(Serve, AClientThatWaitsForContinueGetsIt) {
  start();
  Client c = client();
  const std::string body = add_json(1, 2);
  c.send(fmt::format(
      "POST /v2/models/add/infer HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
      body.size()));
  EXPECT_EQ(c.read().status, 100);
  EXPECT_EQ(c.ask(body).status, 200);
  c.send(
      "POST /v2/models/nobody/infer HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(c.read().status, 404);  // at once, instead
}

TEST_F(Serve, AChunkedBodyIsPutTogether) {
  start();
  Client c = client();
  const std::string json = add_json(20, 22);
  std::string request = "POST /v2/models/add/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (size_t i = 0; i < json.size(); i += 7)
    request += fmt::format("{:x};ext=1\r\n{}\r\n", json.substr(i, 7).size(), json.substr(i, 7));
  request += "0\r\nTrailer: x\r\n\r\n";
  c.send(request.substr(0, 100));
  std::this_thread::sleep_for(20ms);
  const Reply r = c.ask(request.substr(100));
  EXPECT_EQ(r.json()["outputs"][0]["data"][0], 42) << r.body;
  EXPECT_EQ(c.ask(get("/v2/health/live")).status, 200);  // the connection goes on
}

TEST_F(Serve, AChunkedBodyBeyondTheLimitIsRefused) {
  start({.max_body = 100'000});
  const std::string head =
      "POST /v2/models/add/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  const auto chunk = [](const std::string& text) {
    return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
  };
  const std::string json = add_json(1, 2);
  EXPECT_EQ(
      ask(head + chunk(json) + chunk(std::string(100'000 - json.size(), ' ')) + "0\r\n\r\n").status,
      200);
  EXPECT_EQ(
      ask(head + chunk(json) + chunk(std::string(100'001 - json.size(), ' ')) + "0\r\n\r\n").status,
      413);
  Client c = client();
  c.send(head);
  for (int i = 0; i < 30; ++i) c.send(chunk(std::string(5000, ' ')));  // without an end
  EXPECT_EQ(c.read().status, 413);
}

TEST_F(Serve, HeaderAndBodySentApartAreAnsweredWithoutDelay) {
  start();
  Client c = client();
  c.set_nagle(true);  // the body waits until the header has been acknowledged
  const std::string request = post("/v2/models/add/infer", add_json(1, 2));
  const size_t header = request.find("\r\n\r\n") + 4;
  std::vector<std::chrono::duration<double>> times;
  for (int i = 0; i < 60; ++i) {
    const auto begin = Clock::now();
    c.send(std::string_view(request).substr(0, header));
    EXPECT_EQ(c.ask(std::string_view(request).substr(header)).status, 200);
    times.push_back(Clock::now() - begin);
  }
  // The kernel acknowledges a connection's first segments at once anyway. The quarter: other
  // programs may keep this one waiting, too.
  std::ranges::nth_element(times.begin() + 20, times.begin() + 30, times.end());
  EXPECT_LT(times[30], 35ms);  // a delayed acknowledgement takes 40
}

TEST_F(Serve, ABodyThatIsRefusedStillLetsTheAnswerThrough) {
  start({.max_body = 1000});
  for (int i = 0; i < 20; ++i) {
    Client c = client();
    EXPECT_EQ(c.ask(post("/v2/models/add/infer", std::string(3'000'000, ' '))).status, 413);
    EXPECT_TRUE(c.closes_within(5s));
  }
}

std::string gzip(std::string_view text, int window = 15 + 16) {
  z_stream z{};
  deflateInit2(&z, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, text.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = uInt(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = uInt(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

TEST_F(Serve, CompressedBodiesAreReadAndBombsAreNot) {
  start({.max_body = 100'000});
  const std::string path = "/v2/models/add/infer", json = add_json(1, 2);
  Client c = client();
  EXPECT_EQ(
      c.ask(post(path, gzip(json), "Content-Encoding: gzip\r\n")).json()["outputs"][0]["data"][0],
      3);
  EXPECT_EQ(c.ask(post(path, gzip(json, 15), "Content-Encoding: deflate\r\n"))
                .json()["outputs"][0]["data"][0],
            3);
  EXPECT_EQ(c.ask(post(path, json + std::string(), "Content-Encoding: identity\r\n")).status, 200);
  EXPECT_EQ(c.ask(post(path, gzip(json + std::string(100'000 - json.size(), ' ')),
                       "Content-Encoding: gzip\r\n"))
                .status,
            200);
  EXPECT_EQ(c.ask(post(path, gzip(json + std::string(100'001 - json.size(), ' ')),
                       "Content-Encoding: gzip\r\n"))
                .status,
            413);
  EXPECT_EQ(
      c.ask(post(path, gzip(std::string(50'000'000, ' ')), "Content-Encoding: gzip\r\n")).status,
      413);
  EXPECT_EQ(c.ask(post(path, gzip(json).substr(0, 30), "Content-Encoding: gzip\r\n")).status, 400);
  EXPECT_EQ(c.ask(post(path, gzip(json) + "x", "Content-Encoding: gzip\r\n")).status, 400);
}

TEST_F(Serve, TheModelsErrorsBecomeTheirStatus) {
  start({.workers = 1});
  ModelInfo info = testing::echo_model("moody", DataType::i32)->info();
  server->add(std::make_shared<testing::FunctionModel>(
      info, [](std::span<const Blob> in) -> std::vector<Blob> {
        switch (in[0].as<int32_t>()[0]) {
          case 0:
            fail(ErrorCode::invalid_argument, "serve: picture 0: cannot be decoded",
                 "Send a JPEG or PNG");
          case 1:
            fail(ErrorCode::unsupported, "no");
          case 2:
            fail(ErrorCode::timeout, "no");
          case 3:
            fail(ErrorCode::internal, "no");
          case 4:
            throw std::bad_alloc();
          case 5:
            throw std::runtime_error("no");
          case 6:
            return {};
        }
        return {in.begin(), in.end()};
      }));
  const auto status = [&](int x) {
    return ask(post(
        "/v2/models/moody/infer",
        fmt::format(R"({{"inputs":[{{"name":"x","datatype":"INT32","shape":[1],"data":[{}]}}]}})",
                    x)));
  };
  EXPECT_EQ(status(0).error(), "serve: picture 0: cannot be decoded. Send a JPEG or PNG");
  const int want[] = {400, 501, 503, 500, 503, 500, 500, 200};
  for (int x = 0; x < 8; ++x) EXPECT_EQ(status(x).status, want[x]) << x;
}

TEST_F(Serve, WithoutAVersionTheHighestOneAnswers) {
  start();
  server->add(testing::add_model("10"));
  server->add(testing::add_model("9"));
  EXPECT_EQ(ask(post("/v2/models/add/infer", add_json(1, 2))).json()["model_version"], "10");
  EXPECT_EQ(ask(post("/v2/models/add/versions/9/infer", add_json(1, 2))).json()["model_version"],
            "9");
  EXPECT_EQ(ask(get("/v2/models/add")).json()["versions"], Json::array({"1", "9", "10"}));
  EXPECT_THROW(server->add(testing::add_model("9")), Error);
  server->add(testing::echo_model("odd name%", DataType::i8));
  EXPECT_EQ(ask(get("/v2/models/odd%20name%25")).json()["name"], "odd name%");
}

// ---- slow, rude and numerous clients
// --------------------------------------------------------------

TEST_F(Serve, ASlowHeaderIsCutOffHoweverItDribbles) {
  start({.header_timeout = 300ms});
  Client c = client();
  const auto begin = Clock::now();
  for (const char letter : get("/v2") + std::string(1000, 'x')) {
    if (!c.send({&letter, 1}) || c.closes_within(20ms)) break;
  }
  EXPECT_LT(Clock::now() - begin, 5s);
}

TEST_F(Serve, AnIdleConnectionIsClosed) {
  start({.idle_timeout = 200ms});
  Client c = client();
  EXPECT_EQ(c.ask(get("/v2")).status, 200);
  EXPECT_TRUE(c.closes_within(5s));
}

TEST_F(Serve, ABodySlowerThanTheLeastRateIsCutOff) {
  start({.body_timeout = 200ms, .min_rate = 1000});
  Client c = client();
  c.send("POST /v2/models/add/infer HTTP/1.1\r\nContent-Length: 100000\r\n\r\n");
  const auto begin = Clock::now();
  while (!c.closes_within(20ms) && c.send("  "))
    ;  // 100 bytes a second
  EXPECT_LT(Clock::now() - begin, 5s);
  EXPECT_EQ(ask(get("/v2")).status, 200);
}

TEST_F(Serve, AClientThatDoesNotReadItsAnswerIsCutOff) {
  start({.body_timeout = 200ms, .min_rate = 1 << 30});
  Client c = client();
  std::string body(30 << 20, 'x');
  c.send(post("/v2/models/echo_BYTES/infer", body, "Inference-Header-Content-Length: 0\r\n"));
  std::this_thread::sleep_for(1500ms);
  EXPECT_EQ(c.read().status, 0);  // the rest never comes
}

TEST_F(Serve, ClientsThatGoAwayAtAnyMomentDoNoHarm) {
  start({.io_threads = 2});
  const std::string request = post("/v2/models/add/infer", add_json(1, 2));
  for (size_t i = 0; i <= request.size(); i += 5)
    for (const bool rude : {false, true}) {
      Client c = client();
      c.send(std::string_view(request).substr(0, i));
      if (rude) c.reset();
    }
  Client c = client();
  EXPECT_EQ(c.ask(request).status, 200);
  std::string metrics;
  for (int i = 0; i < 500; ++i) {  // nothing of them is left
    metrics = c.ask(get("/metrics")).body;
    if (metrics.find("cairn_http_connections 1\n") != std::string::npos &&
        metrics.find("cairn_http_requests_in_flight 1\n") != std::string::npos)
      return;
    std::this_thread::sleep_for(10ms);
  }
  ADD_FAILURE() << metrics;
}

TEST_F(Serve, WorkIsNotDoneForAClientThatLeftTheQueue) {
  start({.workers = 1});
  Client first = client();
  first.send(gate_request(1));
  ASSERT_TRUE(gate->wait_for_calls(1));
  {
    Client polite = client(), rude = client();
    polite.send(gate_request(2));
    rude.send(gate_request(3));
    const std::regex queued("cairn_infer_queue 2\n");
    while (!std::regex_search(ask(get("/metrics")).body, queued)) std::this_thread::sleep_for(5ms);
    rude.reset();
  }
  std::this_thread::sleep_for(200ms);  // the server hears of it
  gate->open();
  EXPECT_EQ(first.read().status, 200);
  EXPECT_EQ(ask(gate_request(4)).status, 200);
  EXPECT_EQ(gate->calls(), 2);
  EXPECT_NE(
      ask(get("/metrics"))
          .body.find("cairn_infer_requests_total{model=\"gate\",version=\"1\",code=\"499\"} 2\n"),
      std::string::npos);
}

TEST_F(Serve, AFullQueueRefusesAtOnce) {
  start({.workers = 1, .max_queue = 1});
  Client first = client(), second = client();
  first.send(gate_request(1));
  ASSERT_TRUE(gate->wait_for_calls(1));
  second.send(gate_request(2));
  Reply r;
  for (int i = 0; i < 1000 && r.status != 503;
       ++i) {  // until the second is in the queue, this one would wait in it
    if (ask(get("/metrics")).body.find("cairn_infer_queue 1\n") == std::string::npos) continue;
    r = ask(gate_request(3));
  }
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.error(), "Exceeds maximum queue size");
  EXPECT_TRUE(r.headers.contains("retry-after"));
  gate->open();
  EXPECT_EQ(first.read().status, 200);
  EXPECT_EQ(second.read().status, 200);
}

TEST_F(Serve, ARequestThatWaitedPastItsTimeoutIsNotComputed) {
  start({.workers = 1});
  Client first = client(), second = client();
  first.send(gate_request(1));
  ASSERT_TRUE(gate->wait_for_calls(1));
  second.send(post(
      "/v2/models/gate/infer",
      R"({"parameters":{"timeout":1000},"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[1]}]})"));
  std::this_thread::sleep_for(50ms);
  gate->open();
  EXPECT_EQ(second.read().error(), "Request timeout expired");
  EXPECT_EQ(gate->calls(), 1);
}

TEST_F(Serve, IdleConnectionsMakeWayForNewOnes) {
  start({.max_connections = 8});
  std::vector<Client> idle, half;
  for (int i = 0; i < 20; ++i) idle.push_back(client());
  for (int i = 0; i < 20; ++i) {
    half.push_back(client());
    half.back().send("GET /v2 HTTP/1.1\r\nHos");
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ask(get("/v2")).status, 200);
  EXPECT_TRUE(idle.front().closes_within(5s));
}

TEST_F(Serve, BeyondTheLimitOfBusyConnectionsTheAnswerIs503) {
  start({.max_connections = 2});
  Client first = client(), second = client();
  first.send(gate_request(1));
  second.send(gate_request(2));
  ASSERT_TRUE(gate->wait_for_calls(2));
  Client third = client();
  EXPECT_EQ(third.read().status, 503);
}

TEST_F(Serve, BodiesTogetherMayNotExceedTheMemoryForThem) {
  start({.max_body = 8 << 20, .max_memory = 10 << 20});
  const auto head = [](int size) {
    return fmt::format("POST /v2/models/add/infer HTTP/1.1\r\nContent-Length: {}\r\n\r\n", size);
  };
  Client first = client(), claims = client();
  first.send(head(8 << 20) + std::string(7 << 20, ' '));
  claims.send(head(8 << 20));  // a length alone costs nothing
  EXPECT_EQ(ask(head(7 << 20) + std::string(7 << 20, ' ')).status, 503);
  EXPECT_EQ(first.ask(std::string(1 << 20, ' ')).status, 400);  // was not disturbed
  int status = 0;
  for (int i = 0; i < 500 && status != 400; ++i) {  // the memory comes back
    status = ask(head(7 << 20) + std::string(7 << 20, ' ')).status;
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(status, 400);
}

// ---- metrics
// --------------------------------------------------------------------------------------

TEST_F(Serve, MetricsCountRequestsAndTheirTimesInPrometheusText) {
  start();
  for (int i = 0; i < 3; ++i) ask(post("/v2/models/add/infer", add_json(1, 2)));
  ask(post("/v2/models/add/infer", "{}"));
  ask(get("/nowhere"));
  const Reply r = ask(get("/metrics"));
  EXPECT_EQ(r.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line :
       {"cairn_infer_requests_total{model=\"add\",version=\"1\",code=\"200\"} 3\n",
        "cairn_infer_requests_total{model=\"add\",version=\"1\",code=\"400\"} 1\n",
        "cairn_infer_items_total{model=\"add\",version=\"1\"} 3\n",
        "cairn_infer_duration_seconds_bucket{model=\"add\",version=\"1\",le=\"+Inf\"} 3\n",
        "cairn_infer_duration_seconds_count{model=\"add\",version=\"1\"} 3\n",
        "cairn_http_replies_total{code=\"404\"} 1\n", "cairn_http_requests_in_flight 1\n"})
    EXPECT_NE(r.body.find(line), std::string::npos) << line << r.body;
  const std::regex comment("# (HELP|TYPE) [a-z_]+ .+"),
      sample(R"re([a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+)re");
  std::istringstream lines(r.body);
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(std::regex_match(line, comment) || std::regex_match(line, sample)) << line;
}

// ---- starting and stopping
// ------------------------------------------------------------------------

TEST_F(Serve, StopAnswersWhatIsUnderWayAndClosesTheRest) {
  start();
  Client idle = client(), half = client(), busy = client(), alive = client();
  EXPECT_EQ(idle.ask(get("/v2")).status, 200);
  half.send("GET /v2 HTT");
  alive.send(gate_request(1));
  busy.send(gate_request(2));
  ASSERT_TRUE(gate->wait_for_calls(2));
  std::thread stopper([&] { server->stop(20s); });
  EXPECT_TRUE(idle.closes_within(5s));
  EXPECT_TRUE(half.closes_within(5s));
  for (int i = 0; i < 500 && client().connected(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(client().connected());
  gate->open();
  for (Client* c : {&busy, &alive}) {
    const Reply r = c->read();
    EXPECT_EQ(r.status, 200);
    EXPECT_EQ(r.headers.at("connection"), "close");
    EXPECT_TRUE(c->closes_within(5s));
  }
  stopper.join();
  server->wait();
}

TEST_F(Serve, StopWaitsNoLongerThanItsGraceAndASecondCallShortensIt) {
  start();
  Client busy = client();
  busy.send(gate_request(1));
  ASSERT_TRUE(gate->wait_for_calls(1));
  const auto begin = Clock::now();
  std::thread first([&] { server->stop(60s); }), second([&] {
    std::this_thread::sleep_for(50ms);
    server->stop(100ms);
  });
  EXPECT_TRUE(busy.closes_within(10s));  // unanswered
  gate->open();                          // the worker itself cannot be stopped
  first.join();
  second.join();
  EXPECT_LT(Clock::now() - begin, 30s);
}

TEST_F(Serve, ABodyUnderWayAtStopIsStillReadAndAnswered) {
  start();
  Client c = client();
  const std::string request = post("/v2/models/add/infer", add_json(1, 2));
  c.send(std::string_view(request).substr(0, request.size() - 10));
  while (ask(get("/metrics")).body.find("cairn_http_requests_in_flight 2\n") == std::string::npos)
    std::this_thread::sleep_for(5ms);
  std::thread stopper([&] { server->stop(20s); });
  for (int i = 0; i < 500 && client().connected(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(c.ask(std::string_view(request).substr(request.size() - 10)).status, 200);
  stopper.join();
}

TEST_F(Serve, StopUnderLoadLosesNoAcceptedRequest) {
  start({.io_threads = 2, .workers = 2});
  std::atomic<int> wrong{0}, answered{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      while (true) {
        Client c = client();
        if (!c.connected()) return;
        for (int i = 0; i < 10; ++i) {
          if (!c.send(post("/v2/models/add/infer", add_json(1, 2)))) break;
          const Reply r = c.read();
          if (r.status == 0) break;  // closed between two requests
          wrong += r.status != 200 && r.status != 503;
          ++answered;
          if (r.headers.at("connection") == "close") break;
        }
      }
    });
  while (answered < 100) std::this_thread::sleep_for(1ms);
  server->stop(10s);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Serve, AServerThatCannotListenSaysWhy) {
  start();
  Server taken({.port = server->port()}), bad({.address = "nowhere", .port = 0});
  try {
    taken.start();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_NE(e.message().find(std::to_string(server->port())), std::string::npos);
  }
  EXPECT_THROW(bad.start(), Error);
  EXPECT_THROW(server->start(), Error);
}

TEST_F(Serve, AServerCanBeReplacedOnTheSamePortAtOnce) {
  for (int i = 0; i < 3; ++i) {
    start();
    const uint16_t port = server->port();
    Client c = client();
    EXPECT_EQ(c.ask(get("/v2")).status, 200);
    server->stop();
    Server next({.port = port});
    next.start();
    EXPECT_EQ(Client(port).ask(get("/v2/health/ready")).status, 200);
    server.reset();
  }
}

}  // namespace
}  // namespace cairn::serve
