#include "tests/sim/cluster/parcel.hpp"

#include <caf/actor_cast.hpp>
#include <utility>

#include "schema/messages.hpp"

namespace outrider::sim::cluster {
namespace {

template <class Handle>
void put(Handle& handle, const Exchange& exchange) {
  handle = caf::actor_cast<Handle>(exchange(caf::actor_cast<caf::strong_actor_ptr>(handle)));
}

// Every message of the protocol that carries handles from process to process.
void put_all(schema::PlaceRequest& m, const Exchange& exchange) {
  put(m.reply_to, exchange);
}
void put_all(schema::PlaceReply& m, const Exchange& exchange) {
  put(m.target, exchange);
}
void put_all(schema::SubmitBegin& m, const Exchange& exchange) {
  put(m.session, exchange);
  put(m.kv_target, exchange);
}
void put_all(schema::Announce& m, const Exchange& exchange) {
  put(m.target, exchange);
  put(m.draft, exchange);
}
void put_all(schema::LeaseDraft& m, const Exchange& exchange) {
  put(m.reply_to, exchange);
}
void put_all(schema::DraftLease& m, const Exchange& exchange) {
  put(m.draft, exchange);
}
void put_all(schema::LineWanted& m, const Exchange& exchange) {
  put(m.router, exchange);
}
void put_all(schema::DraftOpen& m, const Exchange& exchange) {
  put(m.target, exchange);
}

/// Calls `visit` with the content if it is one of these types. False: it is none.
template <class... Messages, class Visit>
bool visit_any(const caf::message& content, Visit visit) {
  const auto one = [&]<class Message>(const Message* found) {
    if (found != nullptr) visit(*found);
    return found != nullptr;
  };
  return (one(content_of<Messages>(content)) || ...);
}

template <class Visit>
bool visit_keyed(const caf::message& content, Visit visit) {
  return visit_any<schema::PlaceRequest, schema::PlaceReply, schema::SubmitBegin,
                   schema::PromptPart, schema::SubmitEnd, schema::CancelRequest, schema::SetParked,
                   schema::Resend, schema::DoneAck, schema::Accepted, schema::Rejected,
                   schema::Leaving, schema::Tokens, schema::Done>(content, visit);
}

}  // namespace

caf::message exchange_handles(const caf::message& content, const Exchange& exchange) {
  caf::message out = content;
  visit_any<schema::PlaceRequest, schema::PlaceReply, schema::SubmitBegin, schema::Announce,
            schema::LeaseDraft, schema::DraftLease, schema::LineWanted, schema::DraftOpen>(
      content, [&](const auto& message) {
        auto copy = message;
        put_all(copy, exchange);
        out = caf::make_message(std::move(copy));
      });
  return out;
}

std::optional<RequestKey> key_of(const caf::message& content) {
  std::optional<RequestKey> key;
  visit_keyed(content, [&](const auto& message) { key = message.key; });
  return key;
}

caf::message with_key(const caf::message& content, RequestKey key) {
  caf::message out = content;
  visit_keyed(content, [&](const auto& message) {
    auto copy = message;
    copy.key = key;
    out = caf::make_message(std::move(copy));
  });
  return out;
}

std::string describe(const caf::message& content) {
  return content.size() == 1 ? content.stringify(0) : std::string("(nothing)");
}

}  // namespace outrider::sim::cluster
