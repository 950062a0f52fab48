#pragma once

#include <kj/compat/http.h>

#include <string>

#include "gateway/http_exchange.hpp"
#include "gateway/serving.hpp"

namespace outrider::gateway {

/// What the requests of all connections share. Lives as long as the server; KJ thread.
struct HttpShared {
  Serving& serving;
  kj::Timer& timer;
  const HttpHeaderIds& ids;
  const HttpSettings& settings;
  bool reply_closes = false;  ///< The response that begins now ends its connection.
  size_t body_bytes = 0;      ///< See BodyBytes.
};

enum class PostRoute : uint8_t { chat, completion, tokenize, detokenize, reset_cache };

/// The requests of one connection: routing, keys, bodies, replies. One request at a time, as HTTP/1
/// has it.
class HttpConnectionService final : public kj::HttpService {
 public:
  HttpConnectionService(HttpSocket& stream, HttpShared& shared);

  kj::Promise<void> request(kj::HttpMethod method, kj::StringPtr url,
                            const kj::HttpHeaders& headers, kj::AsyncInputStream& body,
                            Response& response) override;

 private:
  kj::Promise<void> route(RequestHead head, kj::AsyncInputStream& body, Response& response);
  /// What follows an exchange: KJ's next one, or the end of the connection.
  kj::Promise<void> after_reply(bool body_is_left);
  kj::Promise<void> post(RequestHead head, kj::AsyncInputStream& body, Response& response,
                         std::string tenant);
  kj::Promise<void> generate(RequestKind kind, RequestHead head, std::string body,
                             Response& response, std::string tenant);
  kj::Promise<void> tokens(PostRoute route, RequestHead head, std::string body, Response& response,
                           const std::string& tenant);
  kj::Promise<void> reset_cache(RequestHead head, const std::string& body, Response& response,
                                std::string tenant);
  /// Logs a refusal, with the field at fault.
  kj::Promise<void> reply(Response& response, const RequestHead& head, Reply reply,
                          const std::string& param = {});
  /// What has a line in the log already.
  kj::Promise<void> send(Response& response, const RequestHead& head, Reply reply);

  HttpShared& shared_;
  ClientConnection connection_;
  BodyBytes body_bytes_;
  TimePoint arrived_{0};  ///< The current request's headers.
  bool body_read_ = false;
};

/// The pages without a body: GET and HEAD. Nothing means: no such path.
std::optional<Reply> get_page(const std::string& path, Serving& serving, const Viewer& viewer);
/// POST /tokenize and /detokenize. Any thread.
Result<Reply> tokenize_page(const std::string& body, const ServedModels& models, UnixTime now);
Result<Reply> detokenize_page(const std::string& body, const ServedModels& models);

Reply cache_reset_page(const CacheResetDone& done);

/// Runs a started generation to its end as server-sent events. `scope` is owned by the promise.
kj::Promise<void> stream_generation(kj::Own<RequestScope> scope, RequestHead head,
                                    kj::HttpService::Response& response, HttpShared& shared,
                                    ClientConnection& connection);
/// The same as one body.
kj::Promise<void> answer_generation(kj::Own<RequestScope> scope, RequestHead head,
                                    kj::HttpService::Response& response, HttpShared& shared,
                                    ClientConnection& connection);

}  // namespace outrider::gateway
