#include "gateway/http_server.hpp"

#include <string_view>
#include <utility>

namespace outrider::gateway {
namespace {

/// Bytes of a refused upload that are read and dropped, so that the client gets to see the answer
/// instead of a reset connection; then the socket is closed.
constexpr size_t k_refused_upload_bytes = size_t{128} << 20;

/// KJ reports a client's wrong framing in the middle of a body as a plain failure.
int status_of(const kj::Exception& exception) {
  const std::string_view text = exception.getDescription().cStr();
  if (text.find("request headers too large") != text.npos) return 431;
  for (const char* framing : {"chunk size", "Content-Length", "ransfer", "HTTP"}) {
    if (text.find(framing) != text.npos) return 400;
  }
  return 500;
}

}  // namespace

HttpServer::HttpServer(Serving& serving, kj::Timer& timer, const HttpSettings& settings)
    : serving_(serving), timer_(timer), settings_(settings) {
  kj::HttpHeaderTable::Builder builder;
  ids_ = std::make_unique<HttpHeaderIds>(builder);
  table_ = builder.build();
  shared_ = std::make_unique<HttpShared>(HttpShared{serving_, timer_, *ids_, settings_});
  kj::HttpServerSettings http;
  http.headerTimeout = settings_.header_timeout_ms * kj::MILLISECONDS;
  http.pipelineTimeout = settings_.body_timeout_ms * kj::MILLISECONDS;
  http.canceledUploadGracePeriod = settings_.body_timeout_ms * kj::MILLISECONDS;
  http.canceledUploadGraceBytes = k_refused_upload_bytes;
  http.errorHandler = *this;
  server_ = std::make_unique<kj::HttpServer>(
      timer_, *table_,
      [this](kj::AsyncIoStream& stream) -> kj::Own<kj::HttpService> {
        return kj::heap<HttpConnectionService>(stream, *shared_);
      },
      http);
}

HttpServer::~HttpServer() {
  listener_.reset();  // its connections run on the server
}

void HttpServer::listen(kj::Own<kj::ConnectionReceiver> port) {
  listener_ = std::make_unique<Listener>(
      Listener::Parts{kj::mv(port), timer_, serving_.metrics(), serving_.parts().log,
                      settings_.connections_max},
      [this](kj::Own<kj::AsyncIoStream> stream) { return server_->listenHttp(kj::mv(stream)); });
}

kj::Promise<void> HttpServer::drain() {
  listener_->stop_accepting();
  return server_->drain();
}

kj::Promise<void> HttpServer::send_error(const ErrorReply& error,
                                         kj::HttpService::Response& response) {
  serving_.metrics().http_responses(error.status).Increment();
  auto body = kj::heap<std::string>(error_body(error));
  kj::HttpHeaders headers(*table_);
  headers.set(kj::HttpHeaderId::CONTENT_TYPE, "application/json"_kj);
  auto out = response.send(static_cast<kj::uint>(error.status), status_text(error.status), headers,
                           body->size());
  auto write = out->write(body->data(), body->size());
  return write.attach(kj::mv(out), kj::mv(body));
}

kj::Promise<void> HttpServer::handleClientProtocolError(kj::HttpHeaders::ProtocolError error,
                                                        kj::HttpService::Response& response) {
  // KJ says 501 for a method that it does not know.
  const int status = error.statusCode == 501 ? 405 : static_cast<int>(error.statusCode);
  return send_error(error_reply(status, error.description.cStr()), response);
}

kj::Promise<void> HttpServer::handleApplicationError(
    kj::Exception exception, kj::Maybe<kj::HttpService::Response&> response) {
  if (exception.getType() == kj::Exception::Type::DISCONNECTED) return kj::READY_NOW;
  const int status = status_of(exception);
  if (status == 500) serving_.log().error("request failed: {}", exception.getDescription().cStr());
  KJ_IF_MAYBE (open, response) {
    return send_error(
        error_reply(status, status == 500 ? "internal error"
                                          : std::string(exception.getDescription().cStr())),
        *open);
  }
  return kj::READY_NOW;
}

kj::Promise<void> HttpServer::handleNoResponse(kj::HttpService::Response& response) {
  return send_error(error_reply(500, "internal error"), response);
}

}  // namespace outrider::gateway
