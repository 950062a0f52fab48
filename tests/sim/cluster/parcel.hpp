#pragma once

#include <caf/actor_control_block.hpp>
#include <caf/message.hpp>
#include <caf/message_id.hpp>
#include <functional>
#include <optional>
#include <string>

#include "base/request.hpp"
#include "tests/sim/cluster/runtime.hpp"

namespace outrider::sim::cluster {

/// A message on its way between two processes. Handles in it are the actors themselves, not what
/// the sender or the receiver sees of them.
struct Parcel {
  ProcessId from = 0;
  ProcessId to = 0;
  caf::strong_actor_ptr sender;  ///< Null: nobody waits for an answer.
  caf::strong_actor_ptr receiver;
  caf::message_id id;
  caf::message content;
};

/// The one message of type `Message` in it; null if it is another one.
template <class Message>
const Message* content_of(const caf::message& content) {
  return content.match_elements<Message>() ? &content.get_as<Message>(0) : nullptr;
}

using Exchange = std::function<caf::strong_actor_ptr(const caf::strong_actor_ptr&)>;
/// The message with each handle in it exchanged.
caf::message exchange_handles(const caf::message& content, const Exchange& exchange);

/// Which attempt of which session it speaks of, if it does.
std::optional<RequestKey> key_of(const caf::message& content);
/// The same message about another attempt.
caf::message with_key(const caf::message& content, RequestKey key);

/// For traces: its type and what it speaks of.
std::string describe(const caf::message& content);

}  // namespace outrider::sim::cluster
