#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/limits.hpp"
#include "base/result.hpp"

namespace outrider::tools {

struct HttpReply {
  unsigned status = 0;
  std::string body;  ///< Whole, unless it was streamed.
};

/// "http://host:port" and a path prefix, from a server as people write it: without http://, or as
/// the base_url of an OpenAI client (a last /v1 is taken off). There is no TLS.
Result<std::string> server_url(const std::string& url);

/// The status of a reply that `stopped` kept from coming.
inline constexpr unsigned k_stopped = 0;

/// A blocking HTTP client for one server, for commands that talk to a running Outrider (or any
/// OpenAI server). Not thread-safe.
class HttpClient {
 public:
  /// `url` as server_url takes it.
  static Result<std::unique_ptr<HttpClient>> connect(const std::string& url,
                                                     const std::string& api_key = {});
  ~HttpClient();

  /// Of what a server has at once, so that one that stands still is not waited for.
  Result<HttpReply> get(const std::string& path, Duration patience = std::chrono::milliseconds(
                                                     limits::client_answer_timeout_ms));
  /// Calls `on_data` with pieces of a 200 body as they come; any other body is in the reply, even
  /// if the server did not read the whole request. Ends the connection when `on_data` says false or
  /// `stopped` (asked 20 times a second) says true.
  Result<HttpReply> post_stream(const std::string& path, const std::string& json,
                                const std::function<bool(std::string_view)>& on_data,
                                const std::function<bool()>& stopped);

 private:
  HttpClient();
  struct State;
  std::unique_ptr<State> state_;
};

/// Cuts a server-sent event stream into the `data:` payloads of its events.
class SseReader {
 public:
  /// Appends bytes; calls `on_event` for each whole event. Comments and other fields are skipped.
  void push(std::string_view bytes, const std::function<void(std::string_view)>& on_event);

 private:
  std::string pending_;
};

}  // namespace outrider::tools
