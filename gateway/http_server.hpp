#pragma once

#include <kj/async-io.h>
#include <kj/compat/http.h>

#include <memory>

#include "gateway/http_service.hpp"
#include "gateway/listener.hpp"

namespace outrider::gateway {

/// The HTTP port: OpenAI's wire, probes, metrics. KJ thread; must be destroyed before `serving`.
class HttpServer final : private kj::HttpServerErrorHandler, private kj::HttpServerCallbacks {
 public:
  HttpServer(Serving& serving, kj::Timer& timer, const HttpSettings& settings);
  ~HttpServer();

  void listen(kj::Own<kj::ConnectionReceiver> port);
  uint16_t port() { return listener_->port(); }
  /// Accepts nothing new and closes idle connections; resolves when all are closed. Once.
  kj::Promise<void> drain();

 private:
  bool shouldClose() override;
  kj::Promise<void> handleClientProtocolError(kj::HttpHeaders::ProtocolError error,
                                              kj::HttpService::Response& response) override;
  kj::Promise<void> handleApplicationError(kj::Exception exception,
                                           kj::Maybe<kj::HttpService::Response&> response) override;
  kj::Promise<void> handleNoResponse(kj::HttpService::Response& response) override;
  kj::Promise<void> send_error(const ErrorReply& error, kj::HttpService::Response& response);

  Serving& serving_;
  kj::Timer& timer_;
  HttpSettings settings_;
  std::unique_ptr<HttpHeaderIds> ids_;
  kj::Own<kj::HttpHeaderTable> table_;
  std::unique_ptr<HttpShared> shared_;
  std::unique_ptr<kj::HttpServer> server_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace outrider::gateway
