#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/request.hpp"
#include "schema/client_stream.hpp"

namespace outrider::gateway {

/// What the gateway needs from the actors, and nothing more: the production one is
/// gateway/caf_bridge.cpp. All calls return at once and are made from the KJ thread.
class Backend {
 public:
  virtual ~Backend() = default;

  /// Starts a session of a model, by its name. Its events come through `stream`, the last one
  /// being StreamDone.
  virtual void open(uint64_t session, const std::string& model, GenerationRequest request,
                    std::shared_ptr<schema::ClientStream> stream) = 0;
  /// The client is gone. The session still ends with one StreamDone.
  virtual void cancel(uint64_t session) = 0;
  /// The reader has drained a `full` stream.
  virtual void resume(uint64_t session) = 0;
};

}  // namespace outrider::gateway
