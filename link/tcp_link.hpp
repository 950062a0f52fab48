#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <thread>

#include "base/clock.hpp"
#include "link/frame.hpp"
#include "link/owned_fd.hpp"
#include "link/shared_session.hpp"
#include "link/tensor_link.hpp"

namespace outrider::link {

/// A link over a stream socket that is connected and whose peer has proved who it is: TCP, or the
/// end of a pair behind which somebody encrypts. A thread of its own reads and writes; callers only
/// queue and take. Nothing waits for the peer's hello: its settings may end the link later.
class TcpLink final : public TensorLink {
 public:
  /// Errors: invalid_argument for settings or a descriptor that is no stream socket, io.
  static Result<std::unique_ptr<TcpLink>> open(OwnedFd socket, LinkSetup setup);
  /// Ends it. Nobody may wait in it any more.
  ~TcpLink() override;
  TcpLink(const TcpLink&) = delete;
  TcpLink& operator=(const TcpLink&) = delete;

  Result<void> send(uint32_t stream, Message message, TimePoint deadline) override;
  Result<Message> receive(uint32_t stream, TimePoint deadline) override;
  void close() override;
  LinkEnd end() const override;

 private:
  TcpLink(OwnedFd socket, OwnedFd waker, LinkSetup setup);

  void run();
  void fetch();
  void read();
  void write();
  void wake();

  const OwnedFd socket_;
  const OwnedFd waker_;  ///< An eventfd: there is something to write, or to end for.
  SharedSession session_;

  // The thread's own.
  FrameReader reader_;
  std::optional<Piece> piece_;  ///< What is being written,
  HeaderBytes header_{};        ///< its header,
  size_t written_ = 0;          ///< and how many bytes of both are out.
  bool can_write_ = true;

  std::thread thread_;
};

}  // namespace outrider::link
