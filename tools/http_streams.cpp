#include "tools/http_streams.hpp"

#include <kj/async-io.h>
#include <kj/async-unix.h>
#include <kj/compat/http.h>

#include <csignal>

#include "base/limits.hpp"
#include "gateway/descriptors.hpp"
#include "schema/exception_text.hpp"
#include "tools/http_client.hpp"

namespace outrider::tools {
namespace {

/// One exchange: what its promises point to.
struct Exchange {
  std::string body;
  HttpStreams::OnData on_data;
  HttpStreams::OnEnd on_end;
  HttpEnd end;
  kj::Own<kj::AsyncInputStream> answer;
  size_t answer_bytes = 0;
  char buffer[4096];
  kj::Promise<void> sent = nullptr;
};

kj::Promise<void> read_answer(Exchange& exchange) {
  return exchange.answer->tryRead(exchange.buffer, 1, sizeof(exchange.buffer))
      .then([&exchange](size_t count) -> kj::Promise<void> {
        if (count == 0) return kj::READY_NOW;
        exchange.answer_bytes += count;
        if (exchange.answer_bytes > limits::client_reply_bytes_max) {
          exchange.end.failure = "too large";
          exchange.end.detail = "the answer has over " +
                                std::to_string(limits::client_reply_bytes_max >> 20) + " MiB";
          return kj::READY_NOW;
        }
        exchange.on_data(exchange.end.status, {exchange.buffer, count});
        return read_answer(exchange);
      });
}

void take_failure(HttpEnd& end, const kj::Exception& exception) {
  const bool gone = exception.getType() == kj::Exception::Type::DISCONNECTED;
  end.failure = gone ? "disconnected" : "transport";
  end.detail = schema::reason_of(exception);
}

}  // namespace

struct HttpStreams::State final : kj::TaskSet::ErrorHandler {
  std::string url;
  std::string api_key;
  kj::Duration timeout = 0 * kj::SECONDS;
  kj::AsyncIoContext io = kj::setupAsyncIo();
  kj::HttpHeaderTable::Builder builder;
  kj::HttpHeaderId authorization = builder.add("Authorization");
  kj::Own<kj::HttpHeaderTable> table = builder.build();
  kj::Own<kj::HttpClient> client = kj::newHttpClient(io.provider->getTimer(), *table,
                                                     io.provider->getNetwork(), nullptr, fresh());
  kj::Own<kj::TaskSet> tasks = kj::heap<kj::TaskSet>(*this);
  bool ends_at_interrupt = false;
  bool interrupted = false;

  static kj::HttpClientSettings fresh() {
    kj::HttpClientSettings settings;
    settings.idleTimeout = 0 * kj::SECONDS;  // no connection is used again
    return settings;
  }

  /// Everything that can fail is taken into an HttpEnd before.
  void taskFailed(kj::Exception&& exception) override {
    OUTRIDER_CHECK(false, exception.getDescription().cStr());
  }

  kj::Promise<void> exchange(const std::string& path, Exchange& exchange) {
    const bool post = !exchange.body.empty();
    kj::HttpHeaders headers(*table);
    if (!api_key.empty()) headers.set(authorization, kj::str("Bearer ", api_key.c_str()));
    if (post) headers.set(kj::HttpHeaderId::CONTENT_TYPE, "application/json");
    auto request = client->request(
        post ? kj::HttpMethod::POST : kj::HttpMethod::GET, kj::str(url.c_str(), path.c_str()),
        headers, post ? kj::Maybe<uint64_t>(exchange.body.size()) : kj::Maybe<uint64_t>());
    if (post) {
      // A server may answer, and close, before it has read the request: the answer tells.
      exchange.sent = request.body->write(exchange.body.data(), exchange.body.size())
                          .then([body = kj::mv(request.body)]() mutable { body = nullptr; })
                          .eagerlyEvaluate([](kj::Exception&&) {});
    }
    request.body = nullptr;  // says that the request is whole
    return request.response.then([&exchange](kj::HttpClient::Response&& response) {
      exchange.end.status = response.statusCode;
      exchange.answer = kj::mv(response.body);
      return read_answer(exchange);
    });
  }

  /// Resolves when the exchange has had its time.
  kj::Promise<void> time_out(HttpEnd& end) {
    return io.provider->getTimer().afterDelay(timeout).then([this, &end] {
      end.failure = "timeout";
      const auto milliseconds = static_cast<double>(timeout / kj::MILLISECONDS);
      end.detail = kj::str("no whole answer within ", milliseconds / 1e3, " s").cStr();
    });
  }
};

HttpStreams::HttpStreams() : state_(std::make_unique<State>()) {}
HttpStreams::~HttpStreams() = default;

Result<std::unique_ptr<HttpStreams>> HttpStreams::create(const std::string& url,
                                                         const std::string& api_key,
                                                         Duration timeout) {
  auto server = server_url(url);
  if (!server) return server.error();
  gateway::raise_descriptor_limit();  // each exchange needs one
  auto streams = std::unique_ptr<HttpStreams>(new HttpStreams());
  streams->state_->url = std::move(*server);
  streams->state_->api_key = api_key;
  streams->state_->timeout = timeout.count() * kj::NANOSECONDS;
  return streams;
}

void HttpStreams::start(const std::string& path, const std::string& body, OnData on_data,
                        OnEnd on_end) {
  auto owned = kj::heap<Exchange>();
  Exchange& exchange = *owned;
  exchange.body = body;
  exchange.on_data = std::move(on_data);
  exchange.on_end = std::move(on_end);
  auto whole = kj::evalNow([&] { return state_->exchange(path, exchange); });
  state_->tasks->add(whole.exclusiveJoin(state_->time_out(exchange.end))
                         .catch_([&exchange](kj::Exception&& e) { take_failure(exchange.end, e); })
                         .then([&exchange] { exchange.on_end(exchange.end); })
                         .attach(kj::mv(owned)));
}

void HttpStreams::after(Duration delay, std::function<void()> then) {
  state_->tasks->add(state_->io.provider->getTimer()
                         .afterDelay(delay.count() * kj::NANOSECONDS)
                         .then([then = std::move(then)] { then(); }));
}

void HttpStreams::run() {
  kj::Promise<void> done = state_->tasks->onEmpty();
  if (state_->ends_at_interrupt) {
    done = done.exclusiveJoin(state_->io.unixEventPort.onSignal(SIGINT).then(
        [this](siginfo_t&&) { state_->interrupted = true; }));
  }
  done.wait(state_->io.waitScope);
  if (state_->interrupted) state_->tasks = kj::heap<kj::TaskSet>(*state_);
}

void HttpStreams::end_at_interrupt() {
  state_->ends_at_interrupt = true;
}

bool HttpStreams::interrupted() const {
  return state_->interrupted;
}

}  // namespace outrider::tools
