// SPDX-License-Identifier: Apache-2.0
// The v2 endpoints: what each path and verb means, and the workers that run inferences.
#include <cairn/serve.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <thread>

#include "base/log.h"
#include "base/parallel.h"
#include "serve/engine.h"
#include "serve/http.h"
#include "serve/inflate.h"
#include "serve/metrics.h"
#include "serve/protocol.h"

namespace cairn::serve {
namespace {

using Clock = std::chrono::steady_clock;

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::not_found:
      return 404;
    case ErrorCode::unsupported:
      return 501;
    case ErrorCode::timeout:
    case ErrorCode::cancelled:
    case ErrorCode::out_of_memory:
      return 503;
    case ErrorCode::io:
    case ErrorCode::internal:
      return 500;
    default:
      return 400;
  }
}

HttpReply failure(const Error& error) {
  std::string text = error.message();
  if (!error.hint().empty()) text += ". " + error.hint();
  return HttpReply::error(http_status(error.code()), text);
}

// ---- paths --------------------------------------------------------------------------------------

enum class Endpoint { server, live, ready, model, model_ready, config, infer, metrics };

struct Route {
  Endpoint endpoint;
  std::string model, version;  // version empty: the highest
};

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    uint8_t byte = 0;
    if (text.size() - i < 3) return std::nullopt;
    const auto [end, ec] = std::from_chars(&text[i] + 1, &text[i] + 3, byte, 16);
    if (ec != std::errc() || end != &text[i] + 3) return std::nullopt;
    out += char(byte);
    i += 2;
  }
  return out;
}

std::optional<Route> route_of(std::string_view target) {
  target = target.substr(0, target.find('?'));
  if (!target.starts_with('/')) return std::nullopt;
  std::vector<std::string> parts;
  while (!target.empty() && target != "/") {
    target.remove_prefix(1);
    const size_t end = std::min(target.find('/'), target.size());
    auto part = percent_decode(target.substr(0, end));
    if (!part || parts.size() == 6) return std::nullopt;
    parts.push_back(std::move(*part));
    target.remove_prefix(end);
  }
  using Parts = std::vector<std::string>;
  if (parts == Parts{"metrics"}) return Route{Endpoint::metrics, {}, {}};
  if (parts == Parts{"v2"}) return Route{Endpoint::server, {}, {}};
  if (parts == Parts{"v2", "health", "live"}) return Route{Endpoint::live, {}, {}};
  if (parts == Parts{"v2", "health", "ready"}) return Route{Endpoint::ready, {}, {}};
  if (parts.size() < 3 || parts[0] != "v2" || parts[1] != "models") return std::nullopt;
  Route route{Endpoint::model, parts[2], {}};
  size_t at = 3;
  if (parts.size() >= 5 && parts[3] == "versions") route.version = parts[4], at = 5;
  if (parts.size() == at) return route;
  if (parts.size() > at + 1) return std::nullopt;
  if (parts[at] == "infer") return route.endpoint = Endpoint::infer, route;
  if (parts[at] == "ready") return route.endpoint = Endpoint::model_ready, route;
  if (parts[at] == "config") return route.endpoint = Endpoint::config, route;
  return std::nullopt;
}

// ---- workers ------------------------------------------------------------------------------------

// A fixed number of threads behind a queue of limited length.
template <class Job>
class Workers {
 public:
  Workers(int count, size_t most, std::function<void(Job&)> run)
      : most_(most), run_(std::move(run)) {
    for (int i = 0; i < std::max(1, count); ++i) threads_.emplace_back([this] { work(); });
  }
  ~Workers() { stop(); }
  bool full() const { return queued() >= most_; }
  size_t queued() const {
    std::lock_guard lock(mutex_);
    return jobs_.size();
  }
  bool add(Job& job) {  // takes it, or gives false when the queue is full
    {
      std::lock_guard lock(mutex_);
      if (stopping_ || jobs_.size() >= most_) return false;
      jobs_.push_back(std::move(job));
    }
    filled_.notify_one();
    return true;
  }
  void stop() {  // drops what waits, returns when what runs has ended
    std::deque<Job> dropped;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      dropped.swap(jobs_);
    }
    filled_.notify_all();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }

 private:
  void work() {
    set_thread_count(1);
    std::unique_lock lock(mutex_);
    while (true) {
      filled_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      {
        Job job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        run_(job);
      }
      lock.lock();
    }
  }

  const size_t most_;
  const std::function<void(Job&)> run_;
  mutable std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

struct InferJob {
  std::shared_ptr<Model> model;
  std::shared_ptr<HttpRequest> request;
  Responder respond;
  Clock::time_point arrived;
};

}  // namespace

// ---- the server ---------------------------------------------------------------------------------

struct Server::Impl final : HttpHandler {
  explicit Impl(ServerOptions o)
      : options(std::move(o)),
        http(options, *this),
        workers(options.workers, options.max_queue, [this](InferJob& job) { run_job(job); }) {}

  std::optional<HttpReply> screen(HttpRequest& request) override;
  void handle(std::shared_ptr<HttpRequest> request, Responder respond) override;
  std::shared_ptr<Model> find(const Route& route) const;  // throws not_found
  HttpReply answer(const Route& route);                   // to all but infer
  void run_job(InferJob& job);
  HttpReply infer(InferJob& job, int64_t& items);

  const ServerOptions options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::map<uint64_t, std::shared_ptr<Model>>> models;  // by name, version
  enum class State { fresh, running, stopping, stopped } state = State::fresh;
  std::atomic<bool> stopping{false};
  Metrics metrics;
  HttpServer http;  // destroyed after the workers, who hold Responders
  Workers<InferJob> workers;
};

std::optional<HttpReply> Server::Impl::screen(HttpRequest& request) {
  const auto route = route_of(request.target);
  if (!route)
    return HttpReply::error(
        404, fmt::format("unknown path {}; try /v2 or /v2/models/NAME", shown(request.target)));
  const bool infer = route->endpoint == Endpoint::infer;
  if (infer ? request.method != "POST" : request.method != "GET" && request.method != "HEAD") {
    HttpReply reply =
        HttpReply::error(405, fmt::format("Method Not Allowed: got {}, expected {}",
                                          shown(request.method), infer ? "POST" : "GET"));
    reply.headers.emplace_back("Allow", infer ? "POST" : "GET, HEAD");
    return reply;
  }
  if (!infer) return std::nullopt;
  if (stopping) return HttpReply::error(503, "the server is stopping");
  try {
    find(*route);
  } catch (const Error& error) {
    return failure(error);
  }
  const std::string_view coding = request.header("Content-Encoding");
  if (!coding.empty() && coding != "identity" && coding != "gzip" && coding != "deflate") {
    HttpReply reply =
        HttpReply::error(501, fmt::format("unknown Content-Encoding {}", shown(coding)));
    reply.headers.emplace_back("Accept-Encoding", "gzip, deflate");
    return reply;
  }
  if (workers.full()) return HttpReply::error(503, "Exceeds maximum queue size");
  const std::string_view json_size = request.header("Inference-Header-Content-Length");
  std::from_chars(json_size.data(), json_size.data() + json_size.size(), request.aligned_at);
  return std::nullopt;
}

void Server::Impl::handle(std::shared_ptr<HttpRequest> request, Responder respond) {
  const auto route = route_of(request->target);
  try {
    CAIRN_CHECK(route.has_value());
    if (route->endpoint != Endpoint::infer) return respond(answer(*route));
    InferJob job{find(*route), std::move(request), std::move(respond), Clock::now()};
    if (!workers.add(job))
      job.respond(HttpReply::error(
          503, stopping ? "the server is stopping" : "Exceeds maximum queue size"));
  } catch (const Error& error) {
    respond(failure(error));
  }
}

std::shared_ptr<Model> Server::Impl::find(const Route& route) const {
  std::lock_guard lock(mutex);
  const auto versions = models.find(route.model);
  if (versions == models.end()) {
    std::vector<std::string_view> names;
    for (const auto& [name, _] : models) names.push_back(name);
    fail(ErrorCode::not_found,
         fmt::format("Request for unknown model: {} is not found", shown(route.model)),
         names.empty() ? "This server has no models"
                       : fmt::format("This server has {}", fmt::join(names, ", ")));
  }
  if (route.version.empty()) return versions->second.rbegin()->second;
  uint64_t number = 0;
  const char* const end = route.version.data() + route.version.size();
  const auto [stop, ec] = std::from_chars(route.version.data(), end, number);
  const auto found =
      ec == std::errc() && stop == end ? versions->second.find(number) : versions->second.end();
  if (found == versions->second.end())
    fail(ErrorCode::not_found, fmt::format("Request for unknown model: {} version {} is not found",
                                           shown(route.model), shown(route.version)));
  return found->second;
}

HttpReply Server::Impl::answer(const Route& route) {
  switch (route.endpoint) {
    case Endpoint::server:
      return {.text = R"({"name":"cairn","version":")" CAIRN_VERSION
                      R"(","extensions":["binary_tensor_data","classification",)"
                      R"("model_configuration","parameters"]})"};
    case Endpoint::live:
      return {.text = R"({"live":true})"};
    case Endpoint::ready:
      if (stopping) return {.status = 503, .text = R"({"ready":false})"};
      return {.text = R"({"ready":true})"};
    case Endpoint::metrics:
      return {.text = metrics.text(http.stats(), workers.queued()),
              .content_type = "text/plain; version=0.0.4; charset=utf-8"};
    case Endpoint::model: {
      const ModelInfo& info = find(route)->info();
      std::vector<std::string> versions;
      std::lock_guard lock(mutex);
      for (const auto& [version, _] : models.at(info.name))
        versions.push_back(std::to_string(version));
      return {.text = metadata_json(info, versions)};
    }
    case Endpoint::model_ready:
      find(route);
      if (stopping) return {.status = 503, .text = R"({"ready":false})"};
      return {.text = R"({"ready":true})"};
    case Endpoint::config:
      return {.text = config_json(find(route)->info())};
    case Endpoint::infer:
      break;
  }
  CAIRN_CHECK(false, "serve: an endpoint without an answer");
}

void Server::Impl::run_job(InferJob& job) {
  const ModelInfo& info = job.model->info();
  if (job.request->abandoned) {
    metrics.inference(info.name, info.version, 499, Clock::now() - job.arrived, 0);
    return job.respond(HttpReply::error(503, "the client has gone"));  // into the void
  }
  int64_t items = 0;
  HttpReply reply;
  try {
    reply = infer(job, items);
  } catch (const Error& error) {
    reply = failure(error);
    if (reply.status == 500)
      log(LogLevel::warning, "serve", fmt::format("model {}: {}", shown(info.name), error.what()));
  } catch (const std::bad_alloc&) {
    reply = HttpReply::error(503, "not enough memory for this request");
  } catch (const std::exception& error) {
    log(LogLevel::warning, "serve", fmt::format("model {}: {}", shown(info.name), error.what()));
    reply = HttpReply::error(500, fmt::format("internal error: {}", error.what()));
  }
  metrics.inference(info.name, info.version, reply.status, Clock::now() - job.arrived, items);
  job.respond(std::move(reply));
}

HttpReply Server::Impl::infer(InferJob& job, int64_t& items) {
  const HttpRequest& http_request = *job.request;
  Body body = http_request.body;
  const std::string_view coding = http_request.header("Content-Encoding");
  if (!coding.empty() && coding != "identity") {
    auto clear = decompress(body, options.max_body, http_request.aligned_at);
    if (!clear)
      return HttpReply::error(413,
                              fmt::format("the body is larger than {} bytes", options.max_body));
    body = std::move(*clear);
  }
  const ModelInfo& info = job.model->info();
  const InferRequest request =
      parse_infer(info, body,
                  {.json_size = http_request.header("Inference-Header-Content-Length"),
                   .content_type = http_request.header("Content-Type"),
                   .accept = http_request.header("Accept")});
  if (request.timeout && Clock::now() - job.arrived > *request.timeout)
    return HttpReply::error(503, "Request timeout expired");
  const std::vector<Blob> outputs = run(*job.model, request.inputs);
  InferAnswer answer = write_infer(info, request, outputs);
  items = batch_of(info, request.inputs);
  HttpReply reply{.text = std::move(answer.json), .parts = std::move(answer.binary)};
  if (!reply.parts.empty()) {
    reply.content_type = "application/octet-stream";
    reply.headers.emplace_back("Inference-Header-Content-Length",
                               std::to_string(reply.text.size()));
  }
  return reply;
}

Server::Server(ServerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Server::~Server() { stop(std::chrono::milliseconds(0)); }

void Server::add(std::shared_ptr<Model> model) {
  CAIRN_CHECK(model != nullptr);
  const ModelInfo& info = model->info();
  check_info(info);
  std::lock_guard lock(impl_->mutex);
  if (!impl_->models[info.name].emplace(std::stoull(info.version), model).second)
    fail(ErrorCode::invalid_argument,
         fmt::format("serve: two models are called {} version {}", shown(info.name), info.version),
         "Give one of them another name");
}

void Server::start() {
  std::lock_guard lock(impl_->mutex);
  if (impl_->state != Impl::State::fresh)
    fail(ErrorCode::invalid_argument, "serve: a server can be started only once");
  impl_->http.start();
  impl_->state = Impl::State::running;
}

uint16_t Server::port() const { return impl_->http.port(); }

void Server::stop(std::chrono::milliseconds grace) {
  using State = Impl::State;
  Impl& s = *impl_;
  const auto deadline =
      Clock::now() + std::clamp<std::chrono::milliseconds>(grace, {}, std::chrono::hours(1000));
  {
    std::unique_lock lock(s.mutex);
    if (s.state == State::stopping) {  // by another thread
      s.http.bring_forward(deadline);
      s.changed.wait(lock, [&] { return s.state == State::stopped; });
    }
    if (s.state == State::stopped) return;
    s.state = State::stopping;
  }
  s.stopping = true;
  s.http.begin_stop();
  s.http.finish_stop(deadline);
  s.workers.stop();
  {
    std::lock_guard lock(s.mutex);
    s.state = State::stopped;
  }
  s.changed.notify_all();
}

void Server::wait() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [&] { return impl_->state == Impl::State::stopped; });
}

}  // namespace cairn::serve
