// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1: whole requests in, within limits of size and time; outputs → responses; clean stop.
#pragma once
#include <cairn/serve.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/protocol.h"

namespace cairn::serve {

struct HttpRequest {
  std::string method, target;
  std::vector<std::pair<std::string, std::string>> headers;
  Body body;
  size_t aligned_at = 0;  // screen() may say which byte of the body is to lie on a 64-byte boundary
  std::atomic<bool> abandoned{false};  // the client has hung up: no need to work for it

  std::string_view header(std::string_view name) const;  // any case; empty when there is none
};

struct HttpReply {
  int status = 200;
  std::string text;         // the body, or its first part,
  std::vector<Blob> parts;  // and then these, not copied
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;

  static HttpReply error(int status, std::string_view message);  // {"error": message}
};

// The right to answer one request, once, from any thread. Dropped unused, it answers 500.
class Responder {
 public:
  struct Target {
    virtual ~Target() = default;
    virtual void send(HttpReply reply) = 0;
  };
  explicit Responder(std::shared_ptr<Target> target) : target_(std::move(target)) {}
  Responder(Responder&&) = default;
  Responder& operator=(Responder&&) = delete;
  ~Responder();
  void operator()(HttpReply reply);

 private:
  std::shared_ptr<Target> target_;
};

// What the requests mean. Both are called on the I/O threads and must not block.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // After a header, before its body is read: an answer here refuses the request.
  virtual std::optional<HttpReply> screen(HttpRequest& request) = 0;
  virtual void handle(std::shared_ptr<HttpRequest> request, Responder respond) = 0;
};

struct HttpStats {
  size_t connections = 0, in_flight = 0;
  std::map<int, uint64_t> replies;  // by status
};

// The sockets. Answers what breaks HTTP or its limits itself (400, 413, 417, 431, 503) and closes
// slow or idle connections. The handler must outlive the server, and drop its Responders before the
// server goes.
class HttpServer {
 public:
  HttpServer(const ServerOptions& options, HttpHandler& handler);
  ~HttpServer();
  void start();  // throws invalid_argument for a bad address, io when it cannot be bound
  uint16_t port() const;
  HttpStats stats() const;

  // From now on accepts nothing new, closes what is idle and each connection after its answer.
  void begin_stop();
  // Waits until every request under way is answered or `deadline` (which a later call may bring
  // forward), then closes everything and ends the threads.
  void finish_stop(std::chrono::steady_clock::time_point deadline);
  void bring_forward(std::chrono::steady_clock::time_point deadline);

 private:
  friend class HttpSession;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn::serve
