#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/request.hpp"
#include "base/result.hpp"

/// The bounded channel from a session to the client's connection. Sessions live in the process of
/// the client's gateway, so this is a pointer, not a message type that crosses nodes.
namespace outrider::schema {

/// Output of one choice, in order of index, without gaps or repeats.
struct StreamTokens {
  uint32_t choice = 0;
  uint32_t first_index = 0;
  std::vector<TokenOut> tokens;
  std::vector<TokenOut> prompt_tokens;  ///< Choice 0, with prompt_logprobs: next prompt tokens.
  std::optional<Finish> finish;         ///< The choice's last event.
};

/// The request's single terminal event. After it nothing follows.
struct StreamDone {
  enum class Outcome : uint8_t { done, rejected, failed, cancelled };
  Outcome outcome = Outcome::done;
  std::optional<Error> error;  ///< Set unless `done`; `overloaded` carries retry_after_ms.
  uint32_t retry_after_ms = 0;
  RequestTimings timings;
};

using StreamEvent = std::variant<StreamTokens, StreamDone>;

/// Written by one session (an actor thread), read by one gateway (the KJ thread).
class ClientStream {
 public:
  virtual ~ClientStream() = default;

  enum class Level : uint8_t {
    flowing,  ///< Go on.
    full,     ///< At limits::client_stream_events_max: the event was taken, send no more until
              ///< the reader says so (FrontDesk resume).
    gone,     ///< The client has left: cancel.
  };
  /// Takes the event. Thread-safe; never blocks. Exactly one StreamDone is pushed, as the last.
  virtual Level push(StreamEvent event) = 0;
};

}  // namespace outrider::schema
