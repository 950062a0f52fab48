#pragma once

#include <kj/async-io.h>
#include <kj/timer.h>

#include <array>
#include <cstdint>
#include <string>

#include "base/limits.hpp"
#include "cluster/frames.hpp"

/// What carries bytes between a connection and this process, once the gate has let it in.
namespace outrider::cluster {

inline constexpr size_t k_pump_bytes = size_t{16} << 10;

template <class T>
kj::Promise<T> bounded(kj::Timer& timer, kj::Promise<T>&& promise) {
  return timer.timeoutAfter(limits::cluster_silence_ms * kj::MILLISECONDS, kj::mv(promise));
}

/// What a member says, until it ends: whole frames that members send.
class Incoming {
 public:
  Incoming(kj::AsyncIoStream& remote, kj::AsyncIoStream& local, kj::Timer& timer, bool of_server)
      : remote_(remote), local_(local), timer_(timer), frames_(of_server) {}

  /// False: it sent what no member sends. Members beat: who says nothing for too long is gone, and
  /// so is an end that takes nothing.
  kj::Promise<bool> run() {
    return bounded(timer_, remote_.tryRead(buffer_.data(), 1, buffer_.size()))
        .then([this](size_t size) -> kj::Promise<bool> {
          if (size == 0) return true;
          if (!frames_.take({buffer_.data(), size})) return false;
          const auto ready = frames_.ready();
          if (ready.empty()) return run();
          return bounded(timer_, local_.write(ready.data(), ready.size())).then([this] {
            frames_.passed();
            return run();
          });
        });
  }

  /// Of a refusal.
  const std::string& why() const { return frames_.why(); }

 private:
  kj::AsyncIoStream& remote_;
  kj::AsyncIoStream& local_;
  kj::Timer& timer_;
  FrameReader frames_;
  std::array<uint8_t, k_pump_bytes> buffer_{};
};

/// Passes on whatever is said: what our actors say, and both directions of a line.
class Pump {
 public:
  /// `beats`: who says nothing for too long is gone.
  Pump(kj::AsyncIoStream& from, kj::AsyncIoStream& to, kj::Timer& timer, bool beats)
      : from_(from), to_(to), timer_(timer), beats_(beats) {}

  kj::Promise<bool> run() {
    auto said = from_.tryRead(buffer_.data(), 1, buffer_.size());
    if (beats_) said = bounded(timer_, kj::mv(said));
    return said.then([this](size_t size) -> kj::Promise<bool> {
      if (size == 0) return true;
      return bounded(timer_, to_.write(buffer_.data(), size)).then([this] { return run(); });
    });
  }

 private:
  kj::AsyncIoStream& from_;
  kj::AsyncIoStream& to_;
  kj::Timer& timer_;
  bool beats_;
  std::array<uint8_t, k_pump_bytes> buffer_{};
};

}  // namespace outrider::cluster
