#include <kj/debug.h>

#include <utility>

#include "gateway/http_service.hpp"
#include "gateway/response.hpp"

namespace outrider::gateway {
namespace {

/// What both answers share; owned by the promise that runs it.
class Answer {
 public:
  Answer(kj::Own<RequestScope> scope, RequestHead head, kj::HttpService::Response& response,
         HttpShared& shared, ClientConnection& connection)
      : scope_(kj::mv(scope)),
        head_(std::move(head)),
        response_(response),
        shared_(shared),
        connection_(connection),
        writer_(scope_->generation(), scope_->id(), scope_->created_s()) {}

 protected:
  Generation& generation() { return scope_->generation(); }

  ErrorReply error() { return error_reply(*generation().error(), generation().retry_after_ms()); }

  kj::Promise<void> reply(Reply reply) {
    scope_->set_status(reply.status);
    shared_.serving.metrics().http_responses(reply.status).Increment();
    return send_reply(response_, head_, shared_.ids, std::move(reply), connection_);
  }

  kj::Own<RequestScope> scope_;
  RequestHead head_;
  kj::HttpService::Response& response_;
  HttpShared& shared_;
  ClientConnection& connection_;
  ResponseWriter writer_;
};

class StreamAnswer final : public Answer {
 public:
  using Answer::Answer;

  kj::Promise<void> run() {
    auto ping = connection_.timer()
                    .afterDelay(connection_.settings().ping_interval_ms * kj::MILLISECONDS)
                    .then([] { return false; });
    auto event_or_ping = generation().ready().then([] { return true; }).exclusiveJoin(kj::mv(ping));
    return event_or_ping.then([this](bool event) -> kj::Promise<void> {
      if (!out_ && opening_.empty()) opening_ = writer_.opening();
      std::string text = take();
      if (!event && text.empty()) text = ": ping\n\n";
      // Nothing was sent yet: a rejection is still an HTTP status of its own.
      if (!out_ && generation().finished() && generation().error()) {
        return reply(reply_of(error()));
      }
      if (text.empty() && !generation().finished()) return run();
      if (!out_) open(text);
      return write(std::move(text)).then([this]() -> kj::Promise<void> {
        if (told_end_) return kj::READY_NOW;
        return run();
      });
    });
  }

 private:
  std::string take() {
    std::string text;
    for (const auto& delta : generation().take()) text += writer_.chunk(delta);
    if (!generation().finished()) return text;
    told_end_ = true;
    if (generation().error()) {
      scope_->set_status(error().status);
      return text + ResponseWriter::error_event(error_body(error()));
    }
    scope_->set_status(200);
    return text + writer_.closing();
  }

  void open(std::string& text) {
    Reply head;
    head.content_type = "text/event-stream; charset=utf-8";
    shared_.serving.metrics().http_responses(200).Increment();
    text = opening_ + text;
    out_ = connection_.begin_stream(response_, response_headers(head_, shared_.ids, head), text);
  }

  /// The next events are taken only when the client's socket took these.
  kj::Promise<void> write(std::string text) {
    buffer_ = std::move(text);
    return connection_.bounded((*out_)->write(buffer_.data(), buffer_.size()));
  }

  bool told_end_ = false;
  std::string opening_;
  std::string buffer_;
  std::optional<kj::Own<kj::AsyncOutputStream>> out_;
};

class WholeAnswer final : public Answer {
 public:
  using Answer::Answer;

  kj::Promise<void> run() {
    return generation().ready().then([this]() -> kj::Promise<void> {
      writer_.collect(generation().take());
      if (!generation().finished()) return run();
      if (generation().error()) return reply(reply_of(error()));
      Reply whole;
      whole.body = writer_.whole();
      return reply(std::move(whole));
    });
  }
};

/// One watch around the whole answer: tokens that flow, or that are not seen, must not hide that
/// nobody is there any more.
template <class Kind>
kj::Promise<void> run_answer(kj::Own<RequestScope> scope, RequestHead head,
                             kj::HttpService::Response& response, HttpShared& shared,
                             ClientConnection& connection) {
  auto answer = kj::heap<Kind>(kj::mv(scope), std::move(head), response, shared, connection);
  auto run = connection.unless_gone(answer->run());
  return run.attach(kj::mv(answer));
}

}  // namespace

kj::Promise<void> stream_generation(kj::Own<RequestScope> scope, RequestHead head,
                                    kj::HttpService::Response& response, HttpShared& shared,
                                    ClientConnection& connection) {
  return run_answer<StreamAnswer>(kj::mv(scope), std::move(head), response, shared, connection);
}

kj::Promise<void> answer_generation(kj::Own<RequestScope> scope, RequestHead head,
                                    kj::HttpService::Response& response, HttpShared& shared,
                                    ClientConnection& connection) {
  return run_answer<WholeAnswer>(kj::mv(scope), std::move(head), response, shared, connection);
}

}  // namespace outrider::gateway
