#include "gateway/http_service.hpp"

#include <array>
#include <utility>

#include "base/limits.hpp"
#include "gateway/request_parser.hpp"

namespace outrider::gateway {
namespace {

enum class PostRoute : uint8_t { chat, completion, tokenize, detokenize };

struct Post {
  const char* path;
  PostRoute route;
};
constexpr std::array k_posts = {
    Post{"/v1/chat/completions", PostRoute::chat},
    Post{"/v1/completions", PostRoute::completion},
    Post{"/tokenize", PostRoute::tokenize},
    Post{"/detokenize", PostRoute::detokenize},
};

const Post* post_route(const std::string& path) {
  for (const auto& post : k_posts) {
    if (path == post.path) return &post;
  }
  return nullptr;
}

/// Probes and scrapers carry no key.
bool is_public(const std::string& path) {
  return path == "/health" || path == "/live" || path == "/ready" || path == "/version" ||
         path == "/metrics";
}

/// A body without a type is taken as JSON; a type that says otherwise is refused, which also keeps
/// web pages from posting here without the browser asking first.
bool is_json(const std::string& content_type) {
  return content_type.empty() || content_type.starts_with("application/json") ||
         content_type.find("+json") != std::string::npos;
}

ErrorReply method_error(const char* allowed) {
  return error_reply(405, std::string("this path takes ") + allowed);
}

}  // namespace

HttpConnectionService::HttpConnectionService(kj::AsyncIoStream& stream, HttpShared& shared)
    : shared_(shared), connection_(stream, shared.timer, shared.settings) {}

kj::Promise<void> HttpConnectionService::reply(Response& response, const RequestHead& head,
                                               Reply reply) {
  shared_.serving.metrics().http_responses(reply.status).Increment();
  return send_reply(response, head, shared_.ids, std::move(reply), connection_);
}

kj::Promise<void> HttpConnectionService::request(kj::HttpMethod method, kj::StringPtr url,
                                                 const kj::HttpHeaders& headers,
                                                 kj::AsyncInputStream& body, Response& response) {
  RequestHead head = read_head(method, url, headers, shared_.ids);
  if (head.request_id.empty()) head.request_id = shared_.serving.new_id("req-");
  const auto refuse = [&](const ErrorReply& error, const char* allow = nullptr) {
    Reply out = reply_of(error);
    out.allow = allow;
    return reply(response, head, std::move(out));
  };
  if (head.header_bytes > limits::http_header_bytes_max) {
    return refuse(error_reply(431, "the headers have " + std::to_string(head.header_bytes) +
                                       " bytes, the limit is " +
                                       std::to_string(limits::http_header_bytes_max)));
  }
  std::string tenant;
  if (!is_public(head.path)) {
    auto owner = shared_.serving.parts().keys.tenant_of_header(
        head.has_authorization ? std::optional<std::string_view>(head.authorization)
                               : std::nullopt);
    if (!owner) {
      return refuse(error_reply(
          fail(ErrorCode::unauthenticated, "a valid API key is needed: Authorization: Bearer …")));
    }
    tenant = std::move(*owner);
  }
  const bool is_post = method == kj::HttpMethod::POST;
  const bool is_get = method == kj::HttpMethod::GET || method == kj::HttpMethod::HEAD;
  if (post_route(head.path)) {
    if (!is_post) return refuse(method_error("POST"), "POST");
    return post(std::move(head), body, response, std::move(tenant));
  }
  auto page = get_page(head.path, shared_.serving);
  if (!page) return refuse(error_reply(404, "there is nothing at " + head.path));
  if (!is_get) return refuse(method_error("GET"), "GET, HEAD");
  return reply(response, head, std::move(*page));
}

kj::Promise<void> HttpConnectionService::post(RequestHead head, kj::AsyncInputStream& body,
                                              Response& response, std::string tenant) {
  if (!is_json(head.content_type)) {
    return reply(response, head,
                 reply_of(error_reply(415, "the Content-Type must be application/json")));
  }
  if (auto admitted = shared_.serving.admit(); !admitted) {
    return reply(response, head, reply_of(error_reply(admitted.error())));
  }
  return read_body(body, connection_)
      .then([this, head = std::move(head), &response,
             tenant = std::move(tenant)](Result<std::string> text) mutable -> kj::Promise<void> {
        if (!text) {
          ErrorReply error = error_reply(text.error());
          if (text.error().code == ErrorCode::deadline_exceeded) {
            error = error_reply(408, text.error().message);
          }
          return reply(response, head, reply_of(error));
        }
        switch (post_route(head.path)->route) {
          case PostRoute::chat:
            return generate(RequestKind::chat, std::move(head), *text, response, std::move(tenant));
          case PostRoute::completion:
            return generate(RequestKind::completion, std::move(head), *text, response,
                            std::move(tenant));
          case PostRoute::tokenize:
            return reply(response, head, tokenize_page(*text, shared_.serving));
          case PostRoute::detokenize:
            return reply(response, head, detokenize_page(*text, shared_.serving));
        }
        KJ_UNREACHABLE;
      });
}

kj::Promise<void> HttpConnectionService::generate(RequestKind kind, RequestHead head,
                                                  const std::string& body, Response& response,
                                                  std::string tenant) {
  auto scope = kj::heap<RequestScope>(shared_.serving,
                                      Caller{head.request_id, std::move(tenant), "http"}, kind);
  auto parsed = parse_request_body(kind, body);
  const bool streams = parsed.ok() && parsed->stream;
  auto started = parsed ? scope->start(std::move(*parsed)) : Result<void>(parsed.error());
  if (!started) {
    const ErrorReply error = error_reply(started.error());
    scope->set_status(error.status);
    return reply(response, head, reply_of(error)).attach(kj::mv(scope));
  }
  if (streams) {
    return stream_generation(kj::mv(scope), std::move(head), response, shared_, connection_);
  }
  return answer_generation(kj::mv(scope), std::move(head), response, shared_, connection_);
}

}  // namespace outrider::gateway
