#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "actors/peer_lines.hpp"
#include "tests/sim/cluster/network.hpp"
#include "tests/sim/cluster/virtual_threads.hpp"

namespace outrider::sim::cluster {

/// Lines between targets, over the gates of gateways: what cluster/gate and a TCP link give. In
/// order and whole, until the line breaks: an end or the gate dies, or is not heard of for
/// limits::link_silence_ms. Then what is on its way is lost.
class Lines {
 public:
  /// The process behind a gate; 0: it is down.
  using GateOf = std::function<ProcessId(const std::string& gate)>;
  /// A message takes up to `message_most` behind the one before it.
  Lines(Runtime& runtime, Network& network, Random& random, const Travel& travel,
        Duration message_most, GateOf gate_of)
      : runtime_(runtime),
        network_(network),
        random_(random),
        travel_(travel),
        message_most_(message_most),
        gate_of_(std::move(gate_of)) {}

  /// As that process has them.
  actors::PeerLines of(ProcessId process);
  /// Before its actors go: `in_flight` arrives before its end does, or is lost.
  void kill(ProcessId process, bool in_flight);
  void calm(const Travel& travel) { travel_ = travel; }
  /// Lines with an end that was not closed.
  size_t open();

  /// Called with what is sent; it may change it.
  std::function<void(link::Message&)> on_send;
  VirtualThreads::OnLateEnd on_late_end;

 private:
  struct Line;
  class End;
  friend class End;
  using Name = std::pair<ProcessId, actors::LineName>;  ///< At which gate.

  Result<std::unique_ptr<link::TensorLink>> dial(ProcessId process, const std::string& gate,
                                                 const actors::LineName& name);
  Duration hop();

  Runtime& runtime_;
  Network& network_;
  Random& random_;
  Travel travel_;
  const Duration message_most_;
  GateOf gate_of_;
  uint64_t names_ = 0;
  std::map<Name, std::shared_ptr<Line>> waiting_;  ///< For their second ends.
  std::vector<std::weak_ptr<Line>> lines_;
};

}  // namespace outrider::sim::cluster
