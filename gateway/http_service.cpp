#include "gateway/http_service.hpp"

#include <kj/debug.h>

#include <array>
#include <utility>

#include "base/limits.hpp"
#include "base/log.hpp"
#include "gateway/json_values.hpp"
#include "gateway/request_parser.hpp"
#include "gateway/trace_context.hpp"

namespace outrider::gateway {
namespace {

struct Post {
  const char* path;
  PostRoute route;
};
constexpr std::array k_posts = {
    Post{"/v1/chat/completions", PostRoute::chat},
    Post{"/v1/completions", PostRoute::completion},
    Post{"/tokenize", PostRoute::tokenize},
    Post{"/detokenize", PostRoute::detokenize},
    Post{"/reset_prefix_cache", PostRoute::reset_cache},
};

const Post* post_route(const std::string& path) {
  for (const auto& post : k_posts) {
    if (path == post.path) return &post;
  }
  return nullptr;
}

bool is_probed(const std::string& path) {
  return path == "/health" || path == "/live" || path == "/ready" || path == "/version";
}

/// Probes carry no key. Scrapers need none: one that they carry must be right.
bool needs_key(const RequestHead& head) {
  return head.path == "/metrics" ? head.has_authorization : !is_probed(head.path);
}

/// Makes KJ end the connection without a word, when all that was to be said is written.
kj::Exception last_exchange_is_over() {
  return KJ_EXCEPTION(DISCONNECTED, "the connection ends with its last reply");
}

constexpr kj::StringPtr k_continue = "HTTP/1.1 100 Continue\r\n\r\n"_kj;

ErrorReply method_error(const char* allowed) {
  return error_reply(405, std::string("this path takes ") + allowed);
}

}  // namespace

HttpConnectionService::HttpConnectionService(HttpSocket& stream, HttpShared& shared)
    : shared_(shared),
      connection_(stream, shared.timer, shared.settings, shared.reply_closes),
      body_bytes_(shared.body_bytes, shared.settings.bodies_bytes_max) {}

kj::Promise<void> HttpConnectionService::reply(Response& response, const RequestHead& head,
                                               Reply reply, const std::string& param) {
  // Probes ask until all is well: their answers are no refusals.
  if (reply.status >= 400 && !is_probed(head.path)) {
    LogLine line("refused");
    line.text("rid", head.request_id)
        .text("method", kj::str(head.method).cStr())
        .word("path", head.path)
        .number("status", reply.status);
    if (!param.empty()) line.word("param", param);
    line.milliseconds("total_ms", to_ms(shared_.serving.parts().clock.now() - arrived_));
    line.write(shared_.serving.log());
  }
  return send(response, head, std::move(reply));
}

kj::Promise<void> HttpConnectionService::send(Response& response, const RequestHead& head,
                                              Reply reply) {
  shared_.serving.metrics().http_responses(reply.status).Increment();
  return send_reply(response, head, shared_.ids, std::move(reply), connection_);
}

kj::Promise<void> HttpConnectionService::request(kj::HttpMethod method, kj::StringPtr url,
                                                 const kj::HttpHeaders& headers,
                                                 kj::AsyncInputStream& body, Response& response) {
  if (connection_.closes()) return last_exchange_is_over();
  arrived_ = shared_.serving.parts().clock.now();
  RequestHead head = read_head(method, url, headers, shared_.ids, shared_.settings.cors_origins);
  if (head.request_id.empty()) head.request_id = shared_.serving.new_id("req-");
  const bool has_body = head.has_body();
  if (head.wants_close || connection_.stream().is_http_1_0() ||
      shared_.serving.phase() == Phase::draining) {
    connection_.close_after_reply();
  }
  body_read_ = false;
  return route(std::move(head), body, response).then([this, has_body] {
    return after_reply(has_body && !body_read_);
  });
}

kj::Promise<void> HttpConnectionService::after_reply(bool body_is_left) {
  body_bytes_.release();
  if (shared_.serving.phase() == Phase::draining) connection_.close_after_reply();
  if (!connection_.closes()) return kj::READY_NOW;
  if (!body_is_left) return last_exchange_is_over();
  // A socket that is closed with bytes unread is reset, and the client may lose the reply: let it
  // see the end, and KJ drop the rest of the upload.
  connection_.stream().shutdownWrite();
  return kj::READY_NOW;
}

kj::Promise<void> HttpConnectionService::route(RequestHead head, kj::AsyncInputStream& body,
                                               Response& response) {
  if (head.is_preflight()) return reply(response, head, Reply{204, ""});
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
  const auto authorization =
      head.has_authorization ? std::optional<std::string_view>(head.authorization) : std::nullopt;
  if (needs_key(head)) {
    auto owner = shared_.serving.parts().keys.tenant_of_header(authorization);
    if (!owner) {
      return refuse(error_reply(
          fail(ErrorCode::unauthenticated, "a valid API key is needed: Authorization: Bearer …")));
    }
    tenant = std::move(*owner);
  }
  const bool is_post = head.method == kj::HttpMethod::POST;
  const bool is_get = head.method == kj::HttpMethod::GET || head.method == kj::HttpMethod::HEAD;
  if (post_route(head.path)) {
    if (!is_post) return refuse(method_error("POST"), "POST");
    return post(std::move(head), body, response, std::move(tenant));
  }
  auto page = get_page(head.path, shared_.serving, shared_.serving.viewer(authorization));
  if (!page) return refuse(error_reply(404, "there is nothing at " + head.path));
  if (!is_get) return refuse(method_error("GET"), "GET, HEAD");
  return reply(response, head, std::move(*page));
}

kj::Promise<void> HttpConnectionService::post(RequestHead head, kj::AsyncInputStream& body,
                                              Response& response, std::string tenant) {
  auto refused = refused_body(head);
  if (auto admitted = shared_.serving.admit(); !refused && !admitted) {
    refused = error_reply(admitted.error());
  }
  if (refused) {
    // A client that waits for 100 may send its body or not: what follows cannot be told apart.
    if (refused->status == 400 || !head.expect.empty()) connection_.close_after_reply();
    return reply(response, head, reply_of(*refused));
  }
  kj::Promise<void> ready = kj::READY_NOW;
  if (!head.expect.empty() && !connection_.stream().is_http_1_0()) {
    ready = connection_.bounded(connection_.stream().write(k_continue.begin(), k_continue.size()));
  }
  return ready.then([this, &body] { return read_body(body, connection_, body_bytes_); })
      .then([this, head = std::move(head), &response,
             tenant = std::move(tenant)](Result<std::string> text) mutable -> kj::Promise<void> {
        if (!text) {
          ErrorReply error = error_reply(text.error());
          if (text.error().code == ErrorCode::deadline_exceeded) {
            error = error_reply(408, text.error().message);
          }
          return reply(response, head, reply_of(error));
        }
        body_read_ = true;
        const PostRoute route = post_route(head.path)->route;
        if (route == PostRoute::tokenize || route == PostRoute::detokenize) {
          return tokens(route, std::move(head), std::move(*text), response, tenant);
        }
        if (route == PostRoute::reset_cache) {
          return reset_cache(std::move(head), *text, response, std::move(tenant));
        }
        const auto kind = route == PostRoute::chat ? RequestKind::chat : RequestKind::completion;
        return generate(kind, std::move(head), std::move(*text), response, std::move(tenant));
      });
}

kj::Promise<void> HttpConnectionService::tokens(PostRoute route, RequestHead head, std::string body,
                                                Response& response, const std::string& tenant) {
  const size_t bytes = body.size();
  std::function<Result<Reply>()> page = [route, body = std::move(body),
                                         models = shared_.serving.served(),
                                         now = shared_.serving.parts().wall_time()] {
    return route == PostRoute::tokenize ? tokenize_page(body, models, now)
                                        : detokenize_page(body, models);
  };
  return connection_.unless_gone(shared_.serving.texts().run(tenant, bytes, std::move(page)))
      .then([this, head = std::move(head), &response](kj::Own<Result<Reply>> made) {
        body_bytes_.release();
        if (*made) return reply(response, head, std::move(**made));
        return reply(response, head, reply_of(error_reply(made->error())), made->error().field);
      });
}

kj::Promise<void> HttpConnectionService::reset_cache(RequestHead head, const std::string& body,
                                                     Response& response, std::string tenant) {
  auto cold = read_cache_reset(body);
  if (!head.query.empty()) {  // as vLLM has it: what it asks for must not get lost
    const std::string name = head.query.substr(0, head.query.find_first_of("=&"));
    cold = invalid(name, "this path takes no query; a body of {\"cold\": true} is for the store");
  }
  if (!cold) return reply(response, head, reply_of(error_reply(cold.error())), cold.error().field);
  body_bytes_.release();
  const Caller caller{head.request_id, std::move(tenant), "http", "", arrived_};
  return connection_.unless_gone(shared_.serving.reset_cache(caller, *cold))
      .then([this, head = std::move(head), &response](Result<CacheResetDone> done) {
        return reply(response, head,
                     done ? cache_reset_page(*done) : reply_of(error_reply(done.error())));
      });
}

kj::Promise<void> HttpConnectionService::generate(RequestKind kind, RequestHead head,
                                                  std::string body, Response& response,
                                                  std::string tenant) {
  Caller caller{head.request_id, std::move(tenant), "http", std::string(trace_id(head.traceparent)),
                arrived_};
  auto scope = kj::heap<RequestScope>(shared_.serving, std::move(caller), kind);
  const size_t bytes = body.size();
  auto started = scope->start(
      bytes, [kind, body = std::move(body)] { return parse_request_body(kind, body); });
  return connection_.unless_gone(kj::mv(started))
      .then([this, head = std::move(head), &response,
             scope = kj::mv(scope)]() mutable -> kj::Promise<void> {
        body_bytes_.release();
        if (scope->error()) {
          const ErrorReply error = error_reply(*scope->error());
          scope->set_status(error.status);
          return send(response, head, reply_of(error)).attach(kj::mv(scope));
        }
        const auto answer =
            scope->generation().request().parsed.stream ? stream_generation : answer_generation;
        return answer(kj::mv(scope), std::move(head), response, shared_, connection_);
      });
}

}  // namespace outrider::gateway
