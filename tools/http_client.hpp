#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace outrider::tools {

struct HttpReply {
  unsigned status = 0;
  std::string body;  ///< Whole, unless it was streamed.
};

/// A blocking HTTP client for one server, for commands that talk to a running Outrider (or any
/// OpenAI server). Not thread-safe.
class HttpClient {
 public:
  /// `url` is http://host:port with an optional path prefix, no TLS; http:// may be missing, and a
  /// last /v1 is taken off.
  static Result<std::unique_ptr<HttpClient>> connect(const std::string& url,
                                                     const std::string& api_key = {});
  ~HttpClient();

  Result<HttpReply> get(const std::string& path);
  /// Calls `on_data` with pieces of a 200 body as they come; any other body is in the reply. Ends
  /// the connection when `on_data` says false or `stopped` (asked 20 times a second) says true.
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
