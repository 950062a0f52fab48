#include "tools/http_client.hpp"

#include <kj/async-io.h>
#include <kj/compat/http.h>

#include "schema/exception_text.hpp"

namespace outrider::tools {
namespace {

Error transport_error(const std::string& url, const kj::Exception& exception) {
  return fail(ErrorCode::unavailable, url + ": " + schema::reason_of(exception));
}

}  // namespace

Result<std::string> server_url(const std::string& url) {
  constexpr std::string_view k_scheme = "http://";
  std::string host = url;
  if (host.starts_with(k_scheme)) host.erase(0, k_scheme.size());
  while (host.ends_with('/')) host.pop_back();
  if (host.ends_with("/v1")) host.resize(host.size() - 3);
  while (host.ends_with('/')) host.pop_back();
  if (host.substr(0, host.find('/')).find('@') != std::string::npos) {  // not shown: a password
    return fail(ErrorCode::invalid_argument,
                "url: a user and a password before an @ are not supported; there is --api-key",
                "url");
  }
  if (host.empty() || host.starts_with('/') || host.find("://") != std::string::npos) {
    return fail(ErrorCode::invalid_argument,
                "url: \"" + url + "\" is not http://host:port (there is no TLS)", "url");
  }
  return std::string(k_scheme) + host;
}

struct HttpClient::State {
  std::string url;
  std::string api_key;
  kj::AsyncIoContext io = kj::setupAsyncIo();
  kj::HttpHeaderTable::Builder builder;
  kj::HttpHeaderId authorization = builder.add("Authorization");
  kj::Own<kj::HttpHeaderTable> table = builder.build();
  kj::Own<kj::HttpClient> client =
      kj::newHttpClient(io.provider->getTimer(), *table, io.provider->getNetwork(), nullptr);

  kj::HttpHeaders headers() const {
    kj::HttpHeaders out(*table);
    if (!api_key.empty()) out.set(authorization, kj::str("Bearer ", api_key.c_str()));
    return out;
  }

  kj::HttpClient::Request start(kj::HttpMethod method, const std::string& path,
                                const std::string& body) {
    auto out = headers();
    if (!body.empty()) out.set(kj::HttpHeaderId::CONTENT_TYPE, "application/json");
    return client->request(method, kj::str(url.c_str(), path.c_str()), out,
                           body.empty() ? kj::Maybe<uint64_t>() : body.size());
  }

  /// Resolves to 0, as a stream's end does, once `stopped` says so.
  kj::Promise<size_t> watch(const std::function<bool()>& stopped) {
    return io.provider->getTimer().afterDelay(50 * kj::MILLISECONDS).then([this, &stopped] {
      return stopped() ? kj::Promise<size_t>(size_t{0}) : watch(stopped);
    });
  }

  static kj::Promise<HttpReply> whole(kj::HttpClient::Response response) {
    auto text = response.body->readAllText(limits::client_reply_bytes_max);
    return text
        .then([status = response.statusCode](kj::String&& read) {
          return HttpReply{status, std::string(read.begin(), read.size())};
        })
        .attach(kj::mv(response.body));
  }

  kj::Promise<HttpReply> fail_after(Duration patience) {
    const auto ms = static_cast<uint64_t>(to_ms(patience));
    return io.provider->getTimer()
        .afterDelay(ms * kj::MILLISECONDS)
        .then([patience]() -> kj::Promise<HttpReply> {
          return kj::Exception(kj::Exception::Type::OVERLOADED, __FILE__, __LINE__,
                               kj::str("no answer in ", to_seconds(patience),
                                       " s: it stands still, is overloaded or speaks no HTTP"));
        });
  }

  HttpReply receive(kj::HttpClient::Response response,
                    const std::function<bool(std::string_view)>& on_data,
                    const std::function<bool()>& stopped) {
    if (response.statusCode != 200) return whole(kj::mv(response)).wait(io.waitScope);
    char buffer[4096];
    for (;;) {
      const size_t count = response.body->tryRead(buffer, 1, sizeof(buffer))
                               .exclusiveJoin(watch(stopped))
                               .wait(io.waitScope);
      if (count == 0 || !on_data({buffer, count})) return HttpReply{response.statusCode, {}};
    }
  }
};

HttpClient::HttpClient() : state_(std::make_unique<State>()) {}
HttpClient::~HttpClient() = default;

Result<std::unique_ptr<HttpClient>> HttpClient::connect(const std::string& url,
                                                        const std::string& api_key) {
  auto server = server_url(url);
  if (!server) return server.error();
  auto client = std::unique_ptr<HttpClient>(new HttpClient());
  client->state_->url = std::move(*server);
  client->state_->api_key = api_key;
  return client;
}

Result<HttpReply> HttpClient::get(const std::string& path, Duration patience) {
  try {
    auto request = state_->start(kj::HttpMethod::GET, path, "");
    request.body = nullptr;
    return request.response.then([](auto&& it) { return State::whole(kj::mv(it)); })
        .exclusiveJoin(state_->fail_after(patience))
        .wait(state_->io.waitScope);
  } catch (const kj::Exception& exception) {
    return transport_error(state_->url, exception);
  }
}

Result<HttpReply> HttpClient::post_stream(const std::string& path, const std::string& json,
                                          const std::function<bool(std::string_view)>& on_data,
                                          const std::function<bool()>& stopped) {
  using Response = kj::HttpClient::Response;
  try {
    auto request = state_->start(kj::HttpMethod::POST, path, json);
    // A server may answer, and close, before it has read the request: the answer tells.
    const auto sent = request.body->write(json.data(), json.size())
                          .then([body = kj::mv(request.body)]() mutable { body = nullptr; })
                          .eagerlyEvaluate([](kj::Exception&&) {});
    auto answered =
        request.response.then([](Response&& it) { return kj::Maybe<Response>(kj::mv(it)); });
    auto ended = state_->watch(stopped).then([](size_t) { return kj::Maybe<Response>(nullptr); });
    auto first = answered.exclusiveJoin(kj::mv(ended)).wait(state_->io.waitScope);
    KJ_IF_MAYBE (response, first) {
      return state_->receive(kj::mv(*response), on_data, stopped);
    }
    return HttpReply{k_stopped, {}};
  } catch (const kj::Exception& exception) {
    return transport_error(state_->url, exception);
  }
}

void SseReader::push(std::string_view bytes,
                     const std::function<void(std::string_view)>& on_event) {
  size_t seen = pending_.size();  // a line that does not end is searched once
  pending_.append(bytes);
  size_t start = 0;
  for (size_t end; (end = pending_.find('\n', seen)) != std::string::npos; seen = start = end + 1) {
    std::string_view line(pending_.data() + start, end - start);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with("data:")) continue;
    line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
    on_event(line);
  }
  pending_.erase(0, start);
}

}  // namespace outrider::tools
