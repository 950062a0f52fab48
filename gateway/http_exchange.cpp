#include "gateway/http_exchange.hpp"

#include <kj/debug.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/comma_list.hpp"
#include "base/limits.hpp"
#include "gateway/trace_context.hpp"

namespace outrider::gateway {
namespace {

std::string text_of(kj::Maybe<kj::StringPtr> value) {
  KJ_IF_MAYBE (text, value) {
    return std::string(text->cStr(), text->size());
  }
  return {};
}

/// Header values that we send back must not surprise a log or a proxy.
std::string printable(std::string text) {
  const bool clean = text.size() <= limits::request_id_bytes_max &&
                     std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F; });
  return clean ? text : std::string();
}

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

/// Whether a comma-separated header value names `token`.
bool lists(const std::string& value, std::string_view token) {
  const std::string text = lower(value);
  return std::ranges::count(comma_list(text), token) != 0;
}

struct BodyState {
  std::string text;
  std::vector<kj::byte> part = std::vector<kj::byte>(size_t{16} << 10);
};

Error body_too_large(uint64_t bytes) {
  return fail(ErrorCode::too_large, "the body has " + std::to_string(bytes) +
                                        " bytes or more, the limit is " +
                                        std::to_string(limits::http_body_bytes_max));
}

using BodyResult = Result<std::string>;

BodyResult too_slow() {
  return fail(ErrorCode::deadline_exceeded, "the body did not arrive in time");
}

kj::Promise<BodyResult> read_parts(kj::AsyncInputStream& body, ClientConnection& connection,
                                   BodyBytes& bytes, kj::Own<BodyState> state) {
  auto& part = state->part;
  auto read = body.tryRead(part.data(), 1, part.size()).then([](size_t n) -> kj::Maybe<size_t> {
    return n;
  });
  auto timeout = connection.timer()
                     .afterDelay(connection.settings().body_timeout_ms * kj::MILLISECONDS)
                     .then([]() -> kj::Maybe<size_t> { return nullptr; });
  return read.exclusiveJoin(kj::mv(timeout))
      .then([&body, &connection, &bytes,
             state = kj::mv(state)](kj::Maybe<size_t> n) mutable -> kj::Promise<BodyResult> {
        KJ_IF_MAYBE (count, n) {
          if (*count == 0) return BodyResult(std::move(state->text));
          if (!bytes.take(*count)) {
            return BodyResult(fail(ErrorCode::overloaded, "too many bodies arrive at once"));
          }
          state->text.append(reinterpret_cast<const char*>(state->part.data()), *count);
          if (state->text.size() > limits::http_body_bytes_max) {
            return BodyResult(body_too_large(state->text.size()));
          }
          return read_parts(body, connection, bytes, kj::mv(state));
        }
        return too_slow();
      });
}

}  // namespace

HttpHeaderIds::HttpHeaderIds(kj::HttpHeaderTable::Builder& builder)
    : authorization(builder.add("Authorization")),
      request_id(builder.add("x-request-id")),
      traceparent(builder.add("traceparent")),
      retry_after(builder.add("Retry-After")),
      allow(builder.add("Allow")),
      cache_control(builder.add("Cache-Control")),
      expect(builder.add("Expect")),
      content_encoding(builder.add("Content-Encoding")),
      origin(builder.add("Origin")),
      vary(builder.add("Vary")),
      request_method(builder.add("Access-Control-Request-Method")),
      request_headers(builder.add("Access-Control-Request-Headers")),
      allow_origin(builder.add("Access-Control-Allow-Origin")),
      allow_methods(builder.add("Access-Control-Allow-Methods")),
      allow_headers(builder.add("Access-Control-Allow-Headers")),
      expose_headers(builder.add("Access-Control-Expose-Headers")),
      max_age(builder.add("Access-Control-Max-Age")),
      table(builder.getFutureTable()) {}

RequestHead read_head(kj::HttpMethod method, kj::StringPtr url, const kj::HttpHeaders& headers,
                      const HttpHeaderIds& ids, const std::string& cors_origins) {
  RequestHead head;
  head.method = method;
  head.path.assign(url.cStr(), url.size());
  if (const size_t mark = head.path.find('?'); mark != head.path.npos) {
    head.query = head.path.substr(mark + 1);
    head.path.resize(mark);
  }
  head.request_id = printable(text_of(headers.get(ids.request_id)));
  head.traceparent = text_of(headers.get(ids.traceparent));
  if (trace_id(head.traceparent).empty()) head.traceparent.clear();
  KJ_IF_MAYBE (authorization, headers.get(ids.authorization)) {
    head.has_authorization = true;
    head.authorization.assign(authorization->cStr(), authorization->size());
  }
  // A media type alone, without its parameters: none of JSON's has a meaning.
  head.content_type = lower(text_of(headers.get(kj::HttpHeaderId::CONTENT_TYPE)));
  head.content_type.resize(std::min(head.content_type.size(), head.content_type.find(';')));
  while (head.content_type.ends_with(' ')) head.content_type.pop_back();
  head.content_encoding = lower(text_of(headers.get(ids.content_encoding)));
  head.content_length = text_of(headers.get(kj::HttpHeaderId::CONTENT_LENGTH));
  head.is_chunked = headers.get(kj::HttpHeaderId::TRANSFER_ENCODING) != nullptr;
  head.expect = lower(text_of(headers.get(ids.expect)));
  head.wants_close = lists(text_of(headers.get(kj::HttpHeaderId::CONNECTION)), "close");
  head.origin_matters = cors_origins != "*";
  const std::string origin = text_of(headers.get(ids.origin));
  if (!origin.empty() && lists(cors_origins, head.origin_matters ? lower(origin) : "*")) {
    head.allow_origin = head.origin_matters ? origin : "*";
  }
  head.asks_for_method = headers.get(ids.request_method) != nullptr;
  head.asks_for_headers = text_of(headers.get(ids.request_headers));
  head.header_bytes = url.size();
  headers.forEach([&](kj::StringPtr name, kj::StringPtr value) {
    head.header_bytes += name.size() + value.size() + 4;
  });
  return head;
}

Reply reply_of(const ErrorReply& error) {
  return {error.status, error_body(error), "application/json", error.retry_after_s, nullptr};
}

std::optional<ErrorReply> refused_body(const RequestHead& head) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!std::ranges::all_of(head.content_length, is_digit)) {
    return error_reply(400, "the Content-Length must be a number of bytes");
  }
  if (head.is_chunked && !head.content_length.empty()) {
    return error_reply(400, "a body has a Content-Length or a Transfer-Encoding, not both");
  }
  if (!head.content_encoding.empty() && head.content_encoding != "identity") {
    return error_reply(415, "the body must come without a Content-Encoding");
  }
  if (!head.expect.empty() && head.expect != "100-continue") {
    return error_reply(417, "the only expectation that is met here is 100-continue");
  }
  // Where a body matters, a web page of a stranger's has to ask first.
  if (head.has_body() && head.content_type != "application/json" &&
      !head.content_type.ends_with("+json")) {
    return error_reply(415, "the Content-Type must be application/json");
  }
  return std::nullopt;
}

ClientConnection::ClientConnection(HttpSocket& stream, kj::Timer& timer,
                                   const HttpSettings& settings, bool& reply_closes)
    : stream_(stream), timer_(timer), settings_(settings), reply_closes_(reply_closes) {
  KJ_IF_MAYBE (fd, stream.getFd()) {
    fd_ = *fd;
  }
}

ClientConnection::Body ClientConnection::begin(kj::HttpService::Response& response, int status,
                                               const kj::HttpHeaders& headers,
                                               uint64_t body_bytes) {
  reply_closes_ = closes_;
  return response.send(static_cast<kj::uint>(status), status_text(status), headers, body_bytes);
}

ClientConnection::Body ClientConnection::begin_stream(kj::HttpService::Response& response,
                                                      kj::HttpHeaders headers, std::string& text) {
  reply_closes_ = closes_;
  if (!stream_.is_http_1_0()) return response.send(200, "OK", headers);
  headers.set(kj::HttpHeaderId::CONNECTION, "close"_kj);
  text.insert(0, headers.serializeResponse(200, "OK").cStr());
  return {&stream_, kj::NullDisposer::instance};
}

bool ClientConnection::gone() const {
  // KJ reads nothing while a request runs and would only notice at a failing write.
  if (fd_ < 0) return false;
  pollfd entry{fd_, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

kj::Promise<void> ClientConnection::watch() {
  return timer_.afterDelay(settings_.watch_interval_ms * kj::MILLISECONDS)
      .then([this]() -> kj::Promise<void> {
        if (gone()) return KJ_EXCEPTION(DISCONNECTED, "the client has gone");
        return watch();
      });
}

kj::Promise<void> ClientConnection::bounded(kj::Promise<void> write) {
  auto timeout = timer_.afterDelay(settings_.write_timeout_ms * kj::MILLISECONDS)
                     .then([]() -> kj::Promise<void> {
                       return KJ_EXCEPTION(DISCONNECTED, "the client takes no bytes");
                     });
  return unless_gone(kj::mv(write)).exclusiveJoin(kj::mv(timeout));
}

kj::HttpHeaders response_headers(const RequestHead& head, const HttpHeaderIds& ids,
                                 const Reply& reply) {
  kj::HttpHeaders headers(ids.table);
  headers.set(kj::HttpHeaderId::CONTENT_TYPE, kj::StringPtr(reply.content_type));
  headers.set(ids.cache_control, "no-cache"_kj);
  if (!head.request_id.empty()) headers.set(ids.request_id, kj::str(head.request_id.c_str()));
  if (!head.traceparent.empty()) headers.set(ids.traceparent, kj::str(head.traceparent.c_str()));
  if (reply.retry_after_s > 0) headers.set(ids.retry_after, kj::str(reply.retry_after_s));
  if (reply.allow) headers.set(ids.allow, kj::StringPtr(reply.allow));
  if (head.origin_matters) headers.set(ids.vary, "Origin"_kj);
  if (head.allow_origin.empty()) return headers;
  headers.set(ids.allow_origin, kj::str(head.allow_origin.c_str()));
  headers.set(ids.expose_headers, "x-request-id, Retry-After"_kj);
  if (!head.is_preflight()) return headers;
  headers.set(ids.allow_methods, "GET, HEAD, POST"_kj);
  headers.set(ids.allow_headers, kj::str(head.asks_for_headers.c_str()));
  headers.set(ids.max_age, "600"_kj);
  return headers;
}

kj::Promise<void> send_reply(kj::HttpService::Response& response, const RequestHead& head,
                             const HttpHeaderIds& ids, Reply reply, ClientConnection& connection) {
  const auto headers = response_headers(head, ids, reply);
  auto out = connection.begin(response, reply.status, headers, reply.body.size());
  if (head.method == kj::HttpMethod::HEAD || reply.body.empty()) return kj::READY_NOW;
  auto body = kj::heap<std::string>(std::move(reply.body));
  auto write = out->write(body->data(), body->size());
  return connection.bounded(kj::mv(write)).attach(kj::mv(out), kj::mv(body));
}

kj::Promise<Result<std::string>> read_body(kj::AsyncInputStream& body, ClientConnection& connection,
                                           BodyBytes& bytes) {
  KJ_IF_MAYBE (length, body.tryGetLength()) {
    if (*length > limits::http_body_bytes_max) {
      return BodyResult(body_too_large(*length));
    }
  }
  auto timeout = connection.timer()
                     .afterDelay(connection.settings().body_total_timeout_ms * kj::MILLISECONDS)
                     .then([] { return too_slow(); });
  return read_parts(body, connection, bytes, kj::heap<BodyState>()).exclusiveJoin(kj::mv(timeout));
}

}  // namespace outrider::gateway
