#include "link/nccl_link.hpp"

#include <chrono>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/limits.hpp"

namespace outrider::link {
namespace {

constexpr uint32_t k_control_stream = 0;
constexpr TimePoint k_at_once{0};
constexpr auto k_idle_rest = std::chrono::milliseconds(limits::link_tick_ms);
constexpr auto k_busy_rest = std::chrono::microseconds(limits::link_nccl_poll_us);

}  // namespace

Result<std::unique_ptr<NcclLink>> NcclLink::open(Parts parts, LinkSetup setup) {
  OUTRIDER_CHECK(parts.control && parts.nccl && parts.rank && setup.clock && setup.counters);
  OUTRIDER_TRY(setup.settings.check());
  std::unique_ptr<NcclLink> link(new NcclLink(std::move(parts), std::move(setup)));
  try {
    link->listener_ = std::thread([raw = link.get()] { raw->listen(); });
    link->runner_ = std::thread([raw = link.get()] { raw->run(); });
  } catch (const std::system_error& error) {
    link->session_.finish(LinkEnd::io);
    link->stop_listening();
    return fail(ErrorCode::io, std::string("a link's thread: ") + error.what());
  }
  return link;
}

NcclLink::NcclLink(Parts parts, LinkSetup setup)
    : control_(std::move(parts.control)),
      nccl_(std::move(parts.nccl)),
      leads_(parts.leads),
      session_(std::move(setup)),
      transfers_(std::move(parts.rank)) {}

NcclLink::~NcclLink() {
  close();
  if (runner_.joinable()) runner_.join();
  if (listener_.joinable()) listener_.join();
  if (auto rank = transfers_.release()) nccl_->retire(std::move(rank));
}

Result<void> NcclLink::send(uint32_t stream, Message message, TimePoint deadline) {
  OUTRIDER_TRY(session_.send(stream, std::move(message), deadline));
  wake();
  return {};
}

Result<Message> NcclLink::receive(uint32_t stream, TimePoint deadline) {
  auto message = session_.receive(stream, deadline);
  if (message) wake();  // there is credit to give back
  return message;
}

void NcclLink::close() {
  session_.finish(LinkEnd::closed);
  wake();
}

void NcclLink::wake() {
  const std::lock_guard lock(mutex_);
  is_woken_ = true;
  woken_.notify_one();
}

/// Until the control link is over.
void NcclLink::listen() {
  while (true) {
    auto message = control_->receive(k_control_stream, TimePoint::max());
    std::unique_lock lock(mutex_);
    has_room_.wait(lock, [&] { return stops_ || inbox_.size() < k_nccl_inbox_messages; });
    if (stops_) return;
    // A larger one is none of ours, and would hold more memory than its place says.
    if (message && message->bytes.size() <= k_header_bytes) {
      inbox_.push_back(std::move(*message));
    } else {
      if (message) session_.finish(LinkEnd::format);
      has_left_ = true;
    }
    is_woken_ = true;
    woken_.notify_one();
    if (has_left_) return;
  }
}

void NcclLink::stop_listening() {
  control_->close();
  const std::lock_guard lock(mutex_);
  stops_ = true;
  has_room_.notify_all();
}

bool NcclLink::has_left() {
  const std::lock_guard lock(mutex_);
  return has_left_;
}

std::optional<Message> NcclLink::next_of_inbox() {
  const std::lock_guard lock(mutex_);
  if (inbox_.empty()) return std::nullopt;
  Message message = std::move(inbox_.front());
  inbox_.pop_front();
  has_room_.notify_all();
  return message;
}

void NcclLink::run() {
  TimePoint looked{};
  do {
    // What came until now is heard before it is asked whether the peer is silent.
    looked = session_.now();
    const bool has_peer_left = has_left();
    bool has_moved = hear(looked);
    has_moved = speak(looked) || has_moved;
    const auto deliver = [this](const Frame& frame) { session_.received(frame); };
    has_moved = transfers_.step(looked, deliver) || has_moved;
    if (transfers_.end() != LinkEnd::none) session_.finish(transfers_.end());
    if (has_moved) continue;
    if (has_peer_left) leave();
    rest();
  } while (!session_.is_over(looked));
  stop_listening();
  nccl_->retire(transfers_.release());
}

/// What has been said has been heard; a payload that is on its way may be lost, as TCP may lose it.
void NcclLink::leave() {
  const LinkEnd end = control_->end();
  if (end == LinkEnd::closed || end == LinkEnd::cut) {
    session_.peer_left(end == LinkEnd::closed && transfers_.is_idle() && !heard_);
  } else {
    session_.finish(end);
  }
}

void NcclLink::rest() {
  const bool is_idle = transfers_.is_idle() && !heard_ && !unsaid_;
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return is_woken_; };
  if (is_idle) {
    woken_.wait_for(lock, k_idle_rest, ready);
  } else {
    woken_.wait_for(lock, k_busy_rest, ready);
  }
  is_woken_ = false;
}

bool NcclLink::hear(TimePoint now) {
  bool has_heard = false;
  while (heard_ || (heard_ = next_of_inbox())) {
    if (!understand(*heard_, now)) break;
    heard_.reset();
    has_heard = true;
  }
  return has_heard;
}

/// False: not now.
bool NcclLink::understand(const Message& message, TimePoint now) {
  if (message.tag == k_nccl_go_tag && !leads_ && message.bytes.size() == 0 &&
      transfers_.has_staged()) {
    transfers_.order_send(now);
    return true;
  }
  const auto bytes = message.bytes.view();
  Header header;
  LinkEnd end = LinkEnd::format;
  if (message.tag == k_nccl_header_tag && bytes.size() == k_header_bytes) {
    end = decode(bytes.first<k_header_bytes>(), header);
    if (end == LinkEnd::none && header.frame.sequence != heard_frames_) end = LinkEnd::sequence;
  }
  if (end != LinkEnd::none) {
    session_.finish(end);
  } else if (header.frame.kind != FrameKind::data) {
    session_.received(header.frame);
  } else if (!transfers_.can_receive() || (leads_ && unsaid_)) {
    return false;
  } else {
    transfers_.order_receive(header, now);
    if (leads_ && header.payload_bytes > 0) say({k_nccl_go_tag, {}});
  }
  ++heard_frames_;
  return true;
}

bool NcclLink::speak(TimePoint now) {
  if (unsaid_ && !say(*std::exchange(unsaid_, std::nullopt))) return false;
  bool has_spoken = false;
  while (!unsaid_ && transfers_.can_stage()) {
    const auto piece = session_.next();
    if (!piece) break;
    const HeaderBytes header = encode(piece->frame);
    say({k_nccl_header_tag, Bytes(std::vector<std::byte>(header.begin(), header.end()))});
    if (!piece->frame.payload.empty()) {
      transfers_.stage(piece->frame.payload, now);
      if (leads_) transfers_.order_send(now);
    }
    session_.written();
    has_spoken = true;
  }
  return has_spoken;
}

/// False: it waits. That the control link is over, the listener says.
bool NcclLink::say(Message message) {
  const auto sent = control_->send(k_control_stream, message, k_at_once);
  if (sent || sent.error().code != ErrorCode::overloaded) return true;
  unsaid_ = std::move(message);
  return false;
}

}  // namespace outrider::link
