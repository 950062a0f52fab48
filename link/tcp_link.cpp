#include "link/tcp_link.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"

namespace outrider::link {
namespace {

constexpr Duration k_tick = std::chrono::milliseconds(limits::link_tick_ms);

Error system_error(const char* doing) {
  return fail(ErrorCode::io, std::string(doing) + ": " + std::strerror(errno));
}

Error over(LinkEnd end) {
  return fail(ErrorCode::unavailable, std::string("the link is over: ") + to_string(end));
}

Error no_stream(uint32_t stream, uint32_t streams) {
  return fail(ErrorCode::invalid_argument,
              "stream " + std::to_string(stream) + " of a link with " + std::to_string(streams),
              "stream");
}

/// Refuses what is no stream socket; nothing on it blocks any more.
Result<void> prepare(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) {
    return fail(ErrorCode::invalid_argument, "a link needs a stream socket", "socket");
  }
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return system_error("fcntl");
  // Credit and small messages wait for nothing. Sockets other than TCP's have no such option.
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return {};
}

bool is_passing(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

bool is_gone(int error) {
  return error == EPIPE || error == ECONNRESET;
}

}  // namespace

Result<std::unique_ptr<TcpLink>> TcpLink::open(OwnedFd socket, LinkSetup setup) {
  OUTRIDER_CHECK(setup.clock != nullptr && setup.counters != nullptr);
  OUTRIDER_TRY(setup.settings.check());
  OUTRIDER_TRY(prepare(socket.get()));
  OwnedFd waker(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (waker.get() < 0) return system_error("eventfd");
  std::unique_ptr<TcpLink> link(new TcpLink(std::move(socket), std::move(waker), std::move(setup)));
  try {
    link->thread_ = std::thread([raw = link.get()] { raw->run(); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::io, std::string("a link's thread: ") + error.what());
  }
  return link;
}

TcpLink::TcpLink(OwnedFd socket, OwnedFd waker, LinkSetup setup)
    : socket_(std::move(socket)),
      waker_(std::move(waker)),
      setup_(std::move(setup)),
      session_(setup_.settings, setup_.clock->now()) {}

TcpLink::~TcpLink() {
  close();
  if (thread_.joinable()) thread_.join();
}

Result<void> TcpLink::send(uint32_t stream, Message message, TimePoint deadline) {
  const LinkSettings& settings = setup_.settings;
  if (stream >= settings.streams) return no_stream(stream, settings.streams);
  const uint64_t bytes = message.bytes.size();
  if (bytes > settings.message_bytes_max()) {
    return fail(ErrorCode::too_large, "a message of " + std::to_string(bytes) + " bytes; at most " +
                                          std::to_string(settings.message_bytes_max()));
  }
  {
    std::unique_lock lock(mutex_);
    while (true) {
      if (session_.end() != LinkEnd::none) return over(session_.end());
      if (session_.push(stream, message)) break;
      if (!wait(lock, deadline)) {
        return fail(ErrorCode::overloaded,
                    "stream " + std::to_string(stream) + " of the link takes no message now");
      }
    }
  }
  setup_.counters->messages_sent += 1;
  setup_.counters->bytes_sent += bytes;
  wake();
  return {};
}

Result<Message> TcpLink::receive(uint32_t stream, TimePoint deadline) {
  if (stream >= setup_.settings.streams) return no_stream(stream, setup_.settings.streams);
  std::optional<Message> message;
  {
    std::unique_lock lock(mutex_);
    while (true) {
      message = session_.pop(stream);
      if (message) break;
      if (session_.end() != LinkEnd::none) return over(session_.end());
      if (!wait(lock, deadline)) {
        return fail(ErrorCode::deadline_exceeded,
                    "no message on stream " + std::to_string(stream) + " of the link in time");
      }
    }
  }
  setup_.counters->messages_received += 1;
  setup_.counters->bytes_received += message->bytes.size();
  wake();  // there is credit to give back
  return std::move(*message);
}

void TcpLink::close() {
  finish(LinkEnd::closed);
  wake();
}

LinkEnd TcpLink::end() const {
  const std::lock_guard lock(mutex_);
  return session_.end();
}

bool TcpLink::wait(std::unique_lock<std::mutex>& lock, TimePoint deadline) {
  const TimePoint now = setup_.clock->now();
  if (now >= deadline) return false;
  // The clock need not be the machine's: look at it again before long.
  condition_.wait_for(lock, std::min(k_tick, deadline - now));
  return true;
}

void TcpLink::wake() {
  const uint64_t one = 1;
  // It fails only when the thread has as many wakings before it as a number can tell.
  [[maybe_unused]] const ssize_t written = ::write(waker_.get(), &one, sizeof(one));
}

void TcpLink::changed() {
  if (session_.end() != LinkEnd::none && !std::exchange(is_counted_, true)) {
    setup_.counters->ended[static_cast<size_t>(session_.end())] += 1;
  }
  condition_.notify_all();
}

void TcpLink::finish(LinkEnd reason) {
  const std::lock_guard lock(mutex_);
  session_.finish(reason);
  changed();
}

void TcpLink::run() {
  TimePoint looked{};
  do {
    // What came until now is heard before it is asked whether the peer is silent: this thread may
    // be the one that is late.
    looked = setup_.clock->now();
    fetch();
    const bool wants_to_write = piece_ && can_write_;
    std::array<pollfd, 2> polled{};
    polled[0] = {socket_.get(), static_cast<short>(POLLIN | (wants_to_write ? POLLOUT : 0)), 0};
    polled[1] = {waker_.get(), POLLIN, 0};
    ::poll(polled.data(), polled.size(), limits::link_tick_ms);
    if (polled[1].revents != 0) {
      uint64_t wakings = 0;
      [[maybe_unused]] const ssize_t count = ::read(waker_.get(), &wakings, sizeof(wakings));
    }
    if ((polled[0].revents & ~POLLOUT) != 0) read();
    if ((polled[0].revents & POLLOUT) != 0) write();
  } while (!is_over(looked));
  ::shutdown(socket_.get(), SHUT_RDWR);
}

bool TcpLink::is_over(TimePoint now) {
  const std::lock_guard lock(mutex_);
  session_.tick(now);
  if (session_.end() == LinkEnd::none) return false;
  changed();
  return true;
}

/// The next piece, sealed.
void TcpLink::fetch() {
  if (piece_) return;
  {
    const std::lock_guard lock(mutex_);
    piece_ = session_.next(setup_.clock->now());
    if (!piece_) return;
    changed();  // a queue may have a place
  }
  header_ = encode(piece_->frame);
  written_ = 0;
}

void TcpLink::read() {
  const auto room = reader_.room();
  const ssize_t bytes = ::recv(socket_.get(), room.data(), room.size(), 0);
  if (bytes < 0) {
    if (!is_passing(errno)) finish(is_gone(errno) ? LinkEnd::cut : LinkEnd::io);
    return;
  }
  if (bytes == 0) {
    const std::lock_guard lock(mutex_);
    session_.peer_left(reader_.is_between_frames());
    changed();
    return;
  }
  reader_.filled(static_cast<size_t>(bytes));
  while (const auto frame = reader_.next()) {  // check sums without the lock
    const std::lock_guard lock(mutex_);
    session_.received(*frame, setup_.clock->now());
    changed();
  }
  if (reader_.end() != LinkEnd::none) finish(reader_.end());
}

void TcpLink::write() {
  const auto payload = piece_->frame.payload;
  std::array<iovec, 2> parts{};
  msghdr message{};
  message.msg_iov = parts.data();
  const auto add = [&](std::span<const std::byte> bytes) {
    parts[message.msg_iovlen++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  if (written_ < k_header_bytes) add(std::span(header_).subspan(written_));
  add(payload.subspan(written_ < k_header_bytes ? 0 : written_ - k_header_bytes));
  const ssize_t bytes = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  if (bytes < 0) {
    if (is_passing(errno)) return;
    if (!is_gone(errno)) return finish(LinkEnd::io);
    can_write_ = false;  // what the peer said before it went is read first
    return;
  }
  written_ += static_cast<size_t>(bytes);
  if (written_ < k_header_bytes + payload.size()) return;
  piece_.reset();
  const std::lock_guard lock(mutex_);
  session_.written(setup_.clock->now());
}

}  // namespace outrider::link
