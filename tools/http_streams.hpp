#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace outrider::tools {

/// How an exchange ended.
struct HttpEnd {
  unsigned status = 0;  ///< 0: no answer came
  /// Empty: the body came whole. Else "disconnected", "timeout", "transport" or
  /// "too large" (limits::client_reply_bytes_max).
  std::string failure;
  std::string detail;  ///< of the failure, for people
};

/// Many requests to one server at once, each on a connection of its own: on a used one, a server
/// that does not switch Nagle's algorithm off loses 40 ms to our delayed acknowledgement, and one
/// that closes it meanwhile loses the request. All callbacks run inside `run`, on the calling
/// thread; they may start more. One object per thread.
class HttpStreams {
 public:
  /// `url` as server_url takes it. `timeout` is for each exchange. Raises the process's limit of
  /// open descriptors as far as it may.
  static Result<std::unique_ptr<HttpStreams>> create(const std::string& url,
                                                     const std::string& api_key, Duration timeout);
  ~HttpStreams();

  using OnData = std::function<void(unsigned status, std::string_view bytes)>;
  using OnEnd = std::function<void(const HttpEnd&)>;
  /// A POST of JSON, or a GET if `body` is empty. `on_end` comes once, after all data.
  void start(const std::string& path, const std::string& body, OnData on_data, OnEnd on_end);
  void after(Duration delay, std::function<void()> then);
  /// Until nothing is under way, or until SIGINT if that ends it: then what is under way is dropped
  /// without a further callback.
  void run();
  /// From here on SIGINT ends `run`; kj::UnixEventPort must have captured it.
  void end_at_interrupt();
  bool interrupted() const;

 private:
  HttpStreams();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace outrider::tools
