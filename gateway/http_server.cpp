#include "gateway/http_server.hpp"

#include <string>
#include <string_view>
#include <utility>

namespace outrider::gateway {
namespace {

/// KJ reports a client's wrong framing as a plain failure, with one of these messages in its text.
/// The text is for the log: it may quote the request, or the server's own source.
ErrorReply reply_of(const kj::Exception& exception) {
  const std::string_view text = exception.getDescription().cStr();
  if (text.find("request headers too large") != text.npos) {
    return error_reply(431, "the headers are over the limit of " +
                                std::to_string(limits::http_header_bytes_max) + " bytes");
  }
  for (const char* framing : {"invalid HTTP chunk size", "premature EOF in HTTP",
                              "unknown transfer encoding", "invalid Content-Length header value",
                              "request body cannot have Transfer-Encoding other than chunked"}) {
    if (text.find(framing) != text.npos) {
      return error_reply(400, "the body's Transfer-Encoding or Content-Length is wrong");
    }
  }
  return error_reply(500, "internal error");
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
  http.canceledUploadGraceBytes = limits::refused_upload_bytes_max;
  http.errorHandler = *this;
  http.callbacks = *this;
  server_ = std::make_unique<kj::HttpServer>(
      timer_, *table_,
      [this](kj::AsyncIoStream& stream) -> kj::Own<kj::HttpService> {
        return kj::heap<HttpConnectionService>(kj::downcast<HttpSocket>(stream), *shared_);
      },
      http);
}

HttpServer::~HttpServer() {
  listener_.reset();  // its connections run on the server
}

void HttpServer::listen(kj::Own<kj::ConnectionReceiver> port) {
  listener_ =
      std::make_unique<Listener>(Listener::Parts{kj::mv(port), timer_, serving_.metrics(),
                                                 serving_.parts().log, settings_.connections_max},
                                 [this](kj::Own<kj::AsyncIoStream> socket) {
                                   return server_->listenHttp(kj::heap<HttpSocket>(kj::mv(socket)));
                                 });
}

kj::Promise<void> HttpServer::drain() {
  listener_->stop_accepting();
  return server_->drain();
}

bool HttpServer::shouldClose() {
  return shared_->reply_closes || serving_.phase() == Phase::draining;
}

kj::Promise<void> HttpServer::send_error(const ErrorReply& error,
                                         kj::HttpService::Response& response) {
  serving_.metrics().http_responses(error.status).Increment();
  auto body = kj::heap<std::string>(error_body(error));
  kj::HttpHeaders headers(*table_);
  headers.set(kj::HttpHeaderId::CONTENT_TYPE, "application/json"_kj);
  headers.set(ids_->request_id, kj::str(serving_.new_id("req-").c_str()));
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
  const ErrorReply error = reply_of(exception);
  if (error.status == 500) {
    serving_.log().error("request failed: {}", exception.getDescription().cStr());
  }
  KJ_IF_MAYBE (open, response) {
    return send_error(error, *open);
  }
  return kj::READY_NOW;
}

kj::Promise<void> HttpServer::handleNoResponse(kj::HttpService::Response& response) {
  return send_error(error_reply(500, "internal error"), response);
}

}  // namespace outrider::gateway
