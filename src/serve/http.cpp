// SPDX-License-Identifier: Apache-2.0
// The HTTP server, on Boost.Beast (nothing else includes it): one strand a connection.
#include "serve/http.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "base/log.h"
#include "base/parallel.h"

namespace cairn::serve {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = net::ip::tcp;
using Clock = std::chrono::steady_clock;
using boost::system::error_code;

constexpr size_t kFirstChunks = 64 << 10;  // a chunked body's first allocation; then it doubles
constexpr size_t kDrain = 16 << 20;  // of a refused body is read, so that the answer gets through,
constexpr auto kDrainTime = std::chrono::seconds(2);  // in that time

std::string_view to_view(beast::string_view text) { return {text.data(), text.size()}; }
bool same(std::string_view a, std::string_view b) {  // in any case
  return beast::iequals({a.data(), a.size()}, {b.data(), b.size()});
}

// The bytes of a body as they come in, counted against the memory that all bodies may take.
class BodyBuffer {
 public:
  BodyBuffer(std::shared_ptr<std::atomic<size_t>> held, size_t limit, size_t aligned_at)
      : charge_(std::make_shared<Charge>(std::move(held))),
        limit_(limit),
        shift_((64 - aligned_at % 64) % 64) {}

  // Room for `size` bytes in all; false when the system refuses. Pages cost nothing until bytes
  // arrive, so a length that is only claimed is not counted.
  bool allocate(size_t size) {
    constexpr std::align_val_t kLine{64};
    auto* const memory = static_cast<std::byte*>(::operator new(size + 64, kLine, std::nothrow));
    if (!memory) return false;
    std::shared_ptr<std::byte> grown(
        memory, [charge = charge_](std::byte* p) { ::operator delete(p, kLine); });
    std::copy_n(data(), size_, memory + shift_);
    storage_ = std::move(grown);
    capacity_ = size;
    return true;
  }
  // Takes note of n bytes written to room(); false when all bodies together are too large now.
  bool commit(size_t n) {
    constexpr size_t kStep = 64 << 10;
    size_ += n;
    if (size_ <= charge_->taken) return true;
    const size_t more = (size_ - charge_->taken + kStep - 1) / kStep * kStep;
    charge_->taken += more;
    return charge_->held->fetch_add(more) + more <= limit_;
  }
  net::mutable_buffer room() { return {data() + size_, capacity_ - size_}; }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  Body body() {
    return {{data(), size_},
            storage_ ? std::shared_ptr<const void>(storage_) : std::make_shared<int>()};
  }

 private:
  struct Charge {
    explicit Charge(std::shared_ptr<std::atomic<size_t>> h) : held(std::move(h)) {}
    ~Charge() { held->fetch_sub(taken); }
    std::shared_ptr<std::atomic<size_t>> held;
    size_t taken = 0;
  };
  std::byte* data() { return storage_ ? storage_.get() + shift_ : nullptr; }

  std::shared_ptr<Charge> charge_;  // goes when the last holder of the body does
  size_t limit_, shift_, size_ = 0, capacity_ = 0;
  std::shared_ptr<std::byte> storage_;
};

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  const auto found =
      std::ranges::find_if(headers, [&](const auto& h) { return same(h.first, name); });
  return found == headers.end() ? std::string_view() : found->second;
}

HttpReply HttpReply::error(int status, std::string_view message) {
  HttpReply reply{.status = status, .text = error_json(message)};
  if (status == 503) reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

Responder::~Responder() {
  if (target_) target_->send(HttpReply::error(500, "the request was dropped"));
}
void Responder::operator()(HttpReply reply) {
  CAIRN_CHECK(target_ != nullptr, "serve: a request answered twice");
  std::exchange(target_, nullptr)->send(std::move(reply));
}

class HttpSession;

struct HttpServer::Impl {
  Impl(const ServerOptions& o, HttpHandler& h) : options(o), handler(h) {}

  void accept();
  void take(tcp::socket socket);
  template <class F>
  void each_session(F&& f);
  void waiting(HttpSession* session,
               bool is);  // for a request; such sessions make way when there are too many
  void begin_request();
  void end_request();
  void count(int status);

  const ServerOptions options;
  HttpHandler& handler;
  std::atomic<bool> stopping{false};
  std::shared_ptr<std::atomic<size_t>> held =
      std::make_shared<std::atomic<size_t>>(0);  // bytes in bodies

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::set<HttpSession*> sessions;
  std::map<uint64_t, HttpSession*> waiting_by_age;
  uint64_t tickets = 0;
  size_t in_flight = 0;
  std::map<int, uint64_t> replies;
  Clock::time_point deadline = Clock::time_point::max();

  net::io_context
      io;  // after what the sessions use: its destructor destroys those still in handlers
  std::optional<net::executor_work_guard<net::io_context::executor_type>> work;
  std::optional<tcp::acceptor> acceptor;
  std::optional<net::steady_timer> accept_again;
  uint16_t port = 0;
  std::vector<std::thread> threads;
};

// One connection: waits for a request, reads it, has it answered, writes the answer, and so on. All
// its functions but send() run on its strand; whoever has an operation under way holds a
// shared_ptr.
class HttpSession final : public Responder::Target,
                          public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(HttpServer::Impl& server, tcp::socket socket)
      : server_(server), stream_(std::move(socket)), buffer_(server.options.max_header + 4096) {
    std::lock_guard lock(server_.mutex);
    server_.sessions.insert(this);
  }
  ~HttpSession() override {
    if (request_) server_.end_request();
    std::lock_guard lock(server_.mutex);
    server_.sessions.erase(this);
    server_.waiting_by_age.erase(ticket);
  }

  void start() {
    error_code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    net::post(stream_.get_executor(), [self = shared_from_this()] { self->await_request(); });
  }
  void refuse() {  // too many connections
    net::post(stream_.get_executor(),
              [self = shared_from_this()] { self->fail_and_close(503, "too many connections"); });
  }
  void close_if_idle() {
    net::post(stream_.get_executor(), [self = shared_from_this()] {
      if (!self->request_) self->close();
    });
  }
  void close_now() {
    net::post(stream_.get_executor(), [self = shared_from_this()] { self->close(); });
  }

  uint64_t ticket = 0;  // the server's, for whom waits longest

  // Responder::Target, from any thread.
  void send(HttpReply reply) override {
    net::post(stream_.get_executor(),
              [self = shared_from_this(), reply = std::move(reply)]() mutable {
                self->respond(std::move(reply));
              });
  }

 private:
  void close() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
  }
  Clock::duration time_for(size_t bytes) const {
    const size_t rate = std::max<size_t>(server_.options.min_rate, 1);
    return server_.options.body_timeout +
           std::chrono::seconds(std::min<size_t>(bytes / rate, 1 << 20));
  }

  void await_request() {
    if (server_.stopping) return close();
    parser_.emplace();
    parser_->header_limit(uint32_t(server_.options.max_header));
    parser_->body_limit(UINT64_MAX);  // the limit is ours and has a clear answer
    server_.waiting(this, true);
    if (buffer_.size() > 0) return read_header();  // the client did not wait for the last answer
    stream_.expires_after(server_.options.idle_timeout);
    stream_.async_read_some(buffer_.prepare(4096),
                            [self = shared_from_this()](error_code ec, size_t n) {
                              if (ec) return self->close();
                              self->buffer_.commit(n);
                              self->read_header();
                            });
  }

  void read_header() {
    stream_.expires_after(server_.options.header_timeout);
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code ec, size_t) { self->on_header(ec); });
  }

  void on_header(error_code ec) {
    server_.waiting(this, false);
    if (ec == http::error::header_limit || ec == http::error::buffer_overflow)
      return fail_and_close(
          431, fmt::format("the header is larger than {} bytes", server_.options.max_header));
    if (not_http(ec)) return fail_and_close(400, "not a valid HTTP request: " + ec.message());
    if (ec || server_.stopping) return close();

    const auto& head = parser_->get();
    request_ = std::make_shared<HttpRequest>();
    server_.begin_request();
    request_->method = std::string(head.method_string());
    request_->target = std::string(head.target());
    for (const auto& field : head)
      request_->headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    keep_alive_ = parser_->keep_alive();

    std::optional<HttpReply> refusal = server_.handler.screen(*request_);
    const auto length = parser_->content_length();
    const std::string_view expect = request_->header("Expect");
    if (!refusal && length && *length > server_.options.max_body) refusal = too_large();
    if (!refusal && !expect.empty() && !same(expect, "100-continue"))
      refusal = HttpReply::error(417, "only 100-continue can be expected");
    if (refusal) return respond(std::move(*refusal));

    body_.emplace(server_.held, server_.options.max_memory, request_->aligned_at);
    if (parser_->is_done()) return hand_over();
    read_started_ = Clock::now();
    // Clients that send header and body apart would otherwise wait 40 ms for a delayed
    // acknowledgement.
    const int on = 1;
    ::setsockopt(stream_.socket().native_handle(), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
    if (expect.empty() || buffer_.size() > 0) return read_body();
    static constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
    stream_.expires_after(server_.options.body_timeout);
    net::async_write(stream_, net::buffer(kGoOn),
                     [self = shared_from_this()](error_code ec, size_t) {
                       if (ec) return self->abort();
                       self->read_body();
                     });
  }

  // Whether a connection broke the rules of HTTP, rather than ended.
  static bool not_http(error_code ec) {
    return ec.category() == http::make_error_code(http::error::bad_chunk).category() &&
           ec != http::error::end_of_stream && ec != http::error::partial_message;
  }
  HttpReply too_large() const {
    return HttpReply::error(
        413, fmt::format("the body is larger than {} bytes", server_.options.max_body));
  }
  static HttpReply no_memory() {
    return HttpReply::error(503, "too many requests at once: no memory for the body");
  }

  // A body of known length goes straight from the socket into its buffer; a chunked one through the
  // parser.
  void read_body() {
    const auto length = parser_->content_length();
    if (body_->size() == body_->capacity()) {
      // One byte more than allowed shows that a chunked body is too large.
      const size_t more =
          std::min(server_.options.max_body + 1, std::max(kFirstChunks, 2 * body_->capacity()));
      if (!body_->allocate(length ? size_t(*length) : more)) return respond(no_memory());
    }
    stream_.expires_at(read_started_ + time_for(body_->size()));
    const net::mutable_buffer room = body_->room();
    if (length) {
      if (buffer_.size() > 0) {  // came with the header
        const size_t early = net::buffer_copy(room, buffer_.data());
        buffer_.consume(early);
        return on_bytes({}, early);
      }
      stream_.async_read_some(
          room, [self = shared_from_this()](error_code ec, size_t n) { self->on_bytes(ec, n); });
    } else {
      parser_->get().body().data = room.data();
      parser_->get().body().size = room.size();
      http::async_read_some(stream_, buffer_, *parser_,
                            [self = shared_from_this(), room](error_code ec, size_t) {
                              self->on_chunk(ec, room.size());
                            });
    }
  }

  void on_bytes(error_code ec, size_t n) {
    if (ec) return abort();
    if (!body_->commit(n)) return respond(no_memory());
    if (body_->size() < parser_->content_length()) return read_body();
    past_parser_ = true;
    hand_over();
  }

  void on_chunk(error_code ec, size_t room) {
    const bool fits = body_->commit(room - parser_->get().body().size);
    if (!fits) return respond(no_memory());
    if (body_->size() > server_.options.max_body) return respond(too_large());
    if (parser_->is_done()) return hand_over();
    if (!ec || ec == http::error::need_buffer) return read_body();
    if (!not_http(ec)) return abort();
    respond(HttpReply::error(400, "not a valid HTTP request: " + ec.message()));
  }

  void hand_over() {
    request_->body = body_->body();
    body_.reset();
    stream_.expires_never();
    watch();
    server_.handler.handle(request_, Responder(shared_from_this()));
  }

  // While the answer is being made nothing is read; but a client that hangs up need not be worked
  // for.
  void watch() {
    if (watching_) return;
    watching_ = true;
    stream_.socket().async_wait(
        tcp::socket::wait_read,
        net::bind_executor(stream_.get_executor(), [self = shared_from_this()](error_code ec) {
          self->watching_ = false;
          if (ec || !self->request_ || self->answering_ || !self->stream_.socket().is_open())
            return;
          char c;
          self->stream_.socket().non_blocking(true, ec);
          self->stream_.socket().receive(net::buffer(&c, 1), tcp::socket::message_peek, ec);
          if (!ec) return;  // the next request is early
          if (ec == net::error::would_block)
            return self->watch();  // it was this request's last bytes
          self->request_->abandoned = true;
          self->close();
        }));
  }

  void fail_and_close(int status, std::string_view message) {
    request_ = std::make_shared<HttpRequest>();
    server_.begin_request();
    keep_alive_ = false;
    respond(HttpReply::error(status, message));
  }

  void respond(HttpReply reply) {
    if (!request_ || answering_) return;
    if (!stream_.socket().is_open()) return end_request();
    server_.count(reply.status);
    answering_ = true;
    reply_ = std::move(reply);
    const bool all_read = parser_ && (parser_->is_done() || past_parser_);
    drain_ = !all_read;
    keep_alive_ = keep_alive_ && all_read && !server_.stopping;
    size_t size = reply_.text.size();
    for (const Blob& part : reply_.parts) size += part.bytes.size();
    head_ = fmt::format("HTTP/1.1 {} {}\r\nServer: cairn\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\n",
                        reply_.status, to_view(http::obsolete_reason(http::status(reply_.status))),
                        fmt::gmtime(std::time(nullptr)));
    for (const auto& [name, value] : reply_.headers)
      head_ += fmt::format("{}: {}\r\n", name, value);
    head_ += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\nConnection: {}\r\n\r\n",
                         reply_.content_type, size, keep_alive_ ? "keep-alive" : "close");
    std::vector<net::const_buffer> buffers{net::buffer(head_)};
    if (request_->method != "HEAD") {
      buffers.push_back(net::buffer(reply_.text));
      for (const Blob& part : reply_.parts)
        buffers.emplace_back(part.bytes.data(), part.bytes.size());
    }
    stream_.expires_after(time_for(size));
    net::async_write(stream_, std::move(buffers),
                     [self = shared_from_this()](error_code ec, size_t) { self->on_written(ec); });
  }

  void on_written(error_code ec) {
    const bool go_on = !ec && keep_alive_, drain = !ec && drain_;
    end_request();
    if (go_on) return await_request();
    if (!drain) return close();
    // Closing with unread bytes would reset the connection and could destroy the answer on its way.
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(kDrainTime);
    discard(0);
  }

  void discard(size_t so_far) {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(buffer_.max_size()),
                            [self = shared_from_this(), so_far](error_code ec, size_t n) {
                              if (ec || so_far + n > kDrain) return self->close();
                              self->discard(so_far + n);
                            });
  }

  void abort() {  // the request will never be complete
    close();
    end_request();
  }

  void end_request() {
    request_.reset();
    body_.reset();
    reply_ = {};
    answering_ = past_parser_ = false;
    server_.end_request();
  }

  HttpServer::Impl& server_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::buffer_body>> parser_;
  std::shared_ptr<HttpRequest> request_;  // from a whole header until its answer is written
  std::optional<BodyBuffer> body_;
  Clock::time_point read_started_;
  HttpReply reply_;
  std::string head_;
  bool keep_alive_ = false, drain_ = false, answering_ = false, watching_ = false;
  bool past_parser_ = false;  // the whole body was read, but not through the parser
};

void HttpServer::Impl::waiting(HttpSession* session, bool is) {
  std::lock_guard lock(mutex);
  waiting_by_age.erase(session->ticket);
  if (is) waiting_by_age[session->ticket = ++tickets] = session;
}
void HttpServer::Impl::begin_request() {
  std::lock_guard lock(mutex);
  ++in_flight;
}
void HttpServer::Impl::end_request() {
  {
    std::lock_guard lock(mutex);
    --in_flight;
  }
  changed.notify_all();
}
void HttpServer::Impl::count(int status) {
  std::lock_guard lock(mutex);
  ++replies[status];
}

template <class F>
void HttpServer::Impl::each_session(F&& f) {
  std::vector<std::shared_ptr<HttpSession>> all;
  {
    std::lock_guard lock(mutex);
    for (HttpSession* s : sessions)
      if (auto held = s->weak_from_this().lock()) all.push_back(std::move(held));
  }
  for (const auto& s : all) f(*s);
}

void HttpServer::Impl::accept() {
  acceptor->async_accept(net::make_strand(io), [this](error_code ec, tcp::socket socket) {
    if (ec == net::error::operation_aborted || stopping) return;
    if (!ec) {
      take(std::move(socket));
      return accept();
    }
    log(LogLevel::warning, "serve", "cannot accept a connection: " + ec.message());
    accept_again->expires_after(
        std::chrono::milliseconds(100));  // out of file descriptors, as a rule
    accept_again->async_wait([this](error_code ec) {
      if (!ec && !stopping) accept();
    });
  });
}

void HttpServer::Impl::take(tcp::socket socket) {
  std::shared_ptr<HttpSession> makes_way;
  size_t count;
  {
    std::lock_guard lock(mutex);
    count = sessions.size();
    if (count >= options.max_connections && !waiting_by_age.empty()) {
      makes_way = waiting_by_age.begin()->second->weak_from_this().lock();
      waiting_by_age.erase(waiting_by_age.begin());
    }
  }
  if (makes_way) makes_way->close_if_idle();
  const auto session = std::make_shared<HttpSession>(*this, std::move(socket));
  if (count < options.max_connections || makes_way)
    session->start();
  else if (count < options.max_connections + 64)
    session->refuse();
}

HttpServer::HttpServer(const ServerOptions& options, HttpHandler& handler)
    : impl_(std::make_unique<Impl>(options, handler)) {}

HttpServer::~HttpServer() {
  begin_stop();
  finish_stop(Clock::now());
}

void HttpServer::start() {
  Impl& s = *impl_;
  error_code ec;
  const auto address = net::ip::make_address(s.options.address, ec);
  if (ec)
    fail(ErrorCode::invalid_argument, "serve: '" + s.options.address + "' is not an IP address",
         "Use 127.0.0.1 for this machine only, 0.0.0.0 for all");
  const tcp::endpoint endpoint(address, s.options.port);
  s.acceptor.emplace(net::make_strand(s.io));
  s.accept_again.emplace(s.acceptor->get_executor());
  s.acceptor->open(endpoint.protocol(), ec);
  if (!ec) s.acceptor->set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec && address.is_v6()) s.acceptor->set_option(net::ip::v6_only(false), ec);
  if (!ec) s.acceptor->bind(endpoint, ec);
  if (!ec) s.acceptor->listen(net::socket_base::max_listen_connections, ec);
  if (!ec) s.port = s.acceptor->local_endpoint(ec).port();
  if (ec)
    fail(ErrorCode::io,
         fmt::format("serve: cannot listen on {} port {}: {}", s.options.address, s.options.port,
                     ec.message()),
         "Choose another port, or stop what uses this one");
  s.work.emplace(s.io.get_executor());
  s.accept();
  for (int i = 0; i < std::max(1, s.options.io_threads); ++i)
    s.threads.emplace_back([&s] {
      set_thread_count(1);
      while (true) {
        try {
          s.io.run();
          return;
        } catch (const std::exception&
                     e) {  // out of memory, as a rule: that connection is lost, no other
          log(LogLevel::warning, "serve", fmt::format("a connection failed: {}", e.what()));
        }
      }
    });
}

uint16_t HttpServer::port() const { return impl_->port; }

HttpStats HttpServer::stats() const {
  std::lock_guard lock(impl_->mutex);
  return {impl_->sessions.size(), impl_->in_flight, impl_->replies};
}

void HttpServer::begin_stop() {
  Impl& s = *impl_;
  if (s.stopping.exchange(true) || s.threads.empty()) return;
  net::post(s.acceptor->get_executor(), [&s] {
    error_code ignored;
    s.acceptor->close(ignored);
    s.accept_again->cancel();
  });
  s.each_session([](HttpSession& session) { session.close_if_idle(); });
}

void HttpServer::bring_forward(Clock::time_point deadline) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->deadline = std::min(impl_->deadline, deadline);
  }
  impl_->changed.notify_all();
}

void HttpServer::finish_stop(Clock::time_point deadline) {
  Impl& s = *impl_;
  bring_forward(deadline);
  {
    std::unique_lock lock(s.mutex);
    while (s.in_flight > 0 && Clock::now() < s.deadline) s.changed.wait_until(lock, s.deadline);
  }
  s.each_session([](HttpSession& session) { session.close_now(); });
  s.work.reset();
  for (std::thread& t : s.threads) t.join();
  s.threads.clear();
}

}  // namespace cairn::serve
