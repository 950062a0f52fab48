#pragma once

#include <kj/compat/http.h>
#include <kj/timer.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gateway/error_reply.hpp"
#include "gateway/http_settings.hpp"
#include "gateway/http_socket.hpp"

namespace outrider::gateway {

/// The headers that we read or write beside KJ's own.
struct HttpHeaderIds {
  explicit HttpHeaderIds(kj::HttpHeaderTable::Builder& builder);
  kj::HttpHeaderId authorization, request_id, traceparent, retry_after, allow, cache_control,
      expect, content_encoding;
  // CORS (the Fetch standard)
  kj::HttpHeaderId origin, vary, request_method, request_headers, allow_origin, allow_methods,
      allow_headers, expose_headers, max_age;
  kj::HttpHeaderTable& table;
};

/// What arrived with one request, copied: KJ's own views end with the first read of the body.
struct RequestHead {
  kj::HttpMethod method = kj::HttpMethod::GET;
  std::string path;         ///< Without the query.
  std::string query;        ///< Behind the '?'.
  std::string request_id;   ///< The client's if it is printable and short, else "".
  std::string traceparent;  ///< Well-formed (W3C), else "".
  std::string authorization;
  bool has_authorization = false;
  std::string content_type;
  std::string content_encoding;
  std::string content_length;
  bool is_chunked = false;  ///< With a Transfer-Encoding, that is; KJ lets only this one through.
  std::string expect;
  bool wants_close = false;  ///< Connection: close
  size_t header_bytes = 0;
  std::string allow_origin;  ///< For the web page that asks, if it may: "*" or its origin.
  bool origin_matters = false;
  bool asks_for_method = false;
  std::string asks_for_headers;

  /// A browser asks whether a page's request may come.
  bool is_preflight() const {
    return method == kj::HttpMethod::OPTIONS && asks_for_method && !allow_origin.empty();
  }
  bool has_body() const { return is_chunked || !(content_length.empty() || content_length == "0"); }
};
RequestHead read_head(kj::HttpMethod method, kj::StringPtr url, const kj::HttpHeaders& headers,
                      const HttpHeaderIds& ids, const std::string& cors_origins);

/// The body as it should be sent, with the exchange's own headers.
struct Reply {
  int status = 200;
  std::string body;
  const char* content_type = "application/json";
  uint32_t retry_after_s = 0;
  const char* allow = nullptr;
};
Reply reply_of(const ErrorReply& error);

/// Why a body cannot be read as it is announced, whatever is in it: its framing, encoding or
/// expectation. Nothing: it can.
std::optional<ErrorReply> refused_body(const RequestHead& head);

/// One client connection, as the request handlers see it: notices that the client has gone although
/// nothing is written, and that it takes no bytes.
///
/// Every response begins here, because KJ sends `Connection: close` but never acts on it: a
/// connection that ends with the current exchange is marked, and its service ends it.
class ClientConnection {
 public:
  /// `reply_closes` is what KJ is told while it writes the headers of a response.
  ClientConnection(HttpSocket& stream, kj::Timer& timer, const HttpSettings& settings,
                   bool& reply_closes);

  /// The current exchange is the last one.
  void close_after_reply() { closes_ = true; }
  bool closes() const { return closes_; }
  HttpSocket& stream() { return stream_; }

  using Body = kj::Own<kj::AsyncOutputStream>;
  Body begin(kj::HttpService::Response& response, int status, const kj::HttpHeaders& headers,
             uint64_t body_bytes);
  /// A body of unknown length, of which `text` comes first. Chunks; but HTTP/1.0 knows none, so
  /// there the end of the connection ends it, and `text` gets the headers put before it.
  Body begin_stream(kj::HttpService::Response& response, kj::HttpHeaders headers,
                    std::string& text);

  /// True once the client has closed its side.
  bool gone() const;
  kj::Timer& timer() { return timer_; }
  const HttpSettings& settings() const { return settings_; }

  /// The promise, or DISCONNECTED when the client has gone first.
  template <class T>
  kj::Promise<T> unless_gone(kj::Promise<T> promise) {
    return promise.exclusiveJoin(watch().then([]() -> kj::Promise<T> { KJ_UNREACHABLE; }));
  }
  /// A write, given up after the write timeout.
  kj::Promise<void> bounded(kj::Promise<void> write);

 private:
  /// Never resolves; throws DISCONNECTED when the client has gone.
  kj::Promise<void> watch();

  HttpSocket& stream_;
  int fd_ = -1;
  kj::Timer& timer_;
  const HttpSettings& settings_;
  bool& reply_closes_;
  bool closes_ = false;
};

/// The exchange's response headers: request id, traceparent, content type.
kj::HttpHeaders response_headers(const RequestHead& head, const HttpHeaderIds& ids,
                                 const Reply& reply);
kj::Promise<void> send_reply(kj::HttpService::Response& response, const RequestHead& head,
                             const HttpHeaderIds& ids, Reply reply, ClientConnection& connection);

/// A connection's share of the bytes that the bodies of all connections take together.
class BodyBytes {
 public:
  BodyBytes(size_t& total, size_t total_max) : total_(total), total_max_(total_max) {}
  ~BodyBytes() { release(); }
  BodyBytes(const BodyBytes&) = delete;
  BodyBytes& operator=(const BodyBytes&) = delete;

  bool take(size_t bytes) {
    if (bytes > total_max_ - total_) return false;
    total_ += bytes;
    held_ += bytes;
    return true;
  }
  void release() { total_ -= std::exchange(held_, 0); }

 private:
  size_t& total_;
  size_t total_max_;
  size_t held_ = 0;
};

/// The whole body, bounded in size (announced or not), by what all bodies may take, and in time, of
/// each part and in all. Errors: too_large, overloaded, deadline_exceeded (408).
kj::Promise<Result<std::string>> read_body(kj::AsyncInputStream& body, ClientConnection& connection,
                                           BodyBytes& bytes);

}  // namespace outrider::gateway
