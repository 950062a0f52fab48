#include "link/tcp_link.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"
#include "base/system.hpp"

namespace outrider::link {
namespace {

Error system_error(const char* doing) {
  return fail(ErrorCode::io, std::string(doing) + ": " + std::strerror(errno));
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
    : socket_(std::move(socket)), waker_(std::move(waker)), session_(std::move(setup)) {}

TcpLink::~TcpLink() {
  close();
  if (thread_.joinable()) thread_.join();
}

Result<void> TcpLink::send(uint32_t stream, Message message, TimePoint deadline) {
  OUTRIDER_TRY(session_.send(stream, std::move(message), deadline));
  wake();
  return {};
}

Result<Message> TcpLink::receive(uint32_t stream, TimePoint deadline) {
  auto message = session_.receive(stream, deadline);
  if (message) wake();  // there is credit to give back
  return message;
}

void TcpLink::close() {
  session_.finish(LinkEnd::closed);
  wake();
}

LinkEnd TcpLink::end() const {
  return session_.end();
}

void TcpLink::wake() {
  const uint64_t one = 1;
  // It fails only when the thread has as many wakings before it as a number can tell.
  [[maybe_unused]] const ssize_t written = ::write(waker_.get(), &one, sizeof(one));
}

void TcpLink::run() {
  name_this_thread("link");
  TimePoint looked{};
  do {
    // What came until now is heard before it is asked whether the peer is silent: this thread may
    // be the one that is late.
    looked = session_.now();
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
  } while (!session_.is_over(looked));
  ::shutdown(socket_.get(), SHUT_RDWR);
}

/// The next piece, sealed.
void TcpLink::fetch() {
  if (piece_) return;
  piece_ = session_.next();
  if (!piece_) return;
  header_ = encode(piece_->frame);
  written_ = 0;
}

void TcpLink::read() {
  const auto room = reader_.room();
  const ssize_t bytes = ::recv(socket_.get(), room.data(), room.size(), 0);
  if (bytes < 0) {
    if (!is_passing(errno)) session_.finish(is_gone(errno) ? LinkEnd::cut : LinkEnd::io);
    return;
  }
  if (bytes == 0) return session_.peer_left(reader_.is_between_frames());
  reader_.filled(static_cast<size_t>(bytes));
  while (const auto frame = reader_.next()) session_.received(*frame);
  if (reader_.end() != LinkEnd::none) session_.finish(reader_.end());
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
    if (!is_gone(errno)) return session_.finish(LinkEnd::io);
    can_write_ = false;  // what the peer said before it went is read first
    return;
  }
  written_ += static_cast<size_t>(bytes);
  if (written_ < k_header_bytes + payload.size()) return;
  piece_.reset();
  session_.written();
}

}  // namespace outrider::link
