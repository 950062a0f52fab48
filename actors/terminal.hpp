#pragma once

#include <memory>
#include <utility>

#include "schema/client_stream.hpp"

namespace outrider::actors {

/// A client's stream with the promise of exactly one StreamDone: whoever holds it and dies without
/// one (an exception, a killed actor) still says `failed`. One owner, one thread at a time.
class Terminal {
 public:
  explicit Terminal(std::shared_ptr<schema::ClientStream> stream) : stream_(std::move(stream)) {}
  Terminal(Terminal&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Terminal& operator=(Terminal&&) = delete;
  ~Terminal() {
    if (!stream_) return;
    schema::StreamDone done;
    done.outcome = schema::StreamDone::Outcome::failed;
    done.error = fail(ErrorCode::internal, "the request's session ended unexpectedly");
    finish(std::move(done));
  }

  schema::ClientStream::Level push(schema::StreamTokens tokens) {
    return stream_ ? stream_->push(std::move(tokens)) : schema::ClientStream::Level::gone;
  }
  /// The terminal event. Later ones are dropped.
  void finish(schema::StreamDone done) {
    if (auto stream = std::exchange(stream_, nullptr)) stream->push(std::move(done));
  }

 private:
  std::shared_ptr<schema::ClientStream> stream_;
};

}  // namespace outrider::actors
