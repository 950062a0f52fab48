#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/line_threads.hpp"
#include "base/clock.hpp"
#include "base/limits.hpp"
#include "base/result.hpp"
#include "link/nccl_upgrade.hpp"
#include "link/tensor_link.hpp"

namespace outrider::actors {

/// Names a line to both of its ends.
using LineName = std::vector<uint8_t>;

/// How a target gets at a line to another one, over the gate of a process that both know: the
/// address where this process dials it, or "" for its own.
struct PeerLines {
  using Dial = std::function<Result<std::unique_ptr<link::TensorLink>>(const std::string& gate,
                                                                       const LineName& line)>;
  /// Blocks for limits::cluster_handshake_ms at most. Null: there are no lines.
  Dial dial;
  std::function<LineName()> new_name;
  std::shared_ptr<const Clock> clock;  ///< The links', too.
  /// For the other end's next word, at each.
  Duration patience = std::chrono::milliseconds(limits::peer_wait_ms);
  /// With NCCL in it who asks on a line offers to move it there; who answers says yes or no. Its
  /// setup is the dialled links', always.
  link::NcclTerms nccl;
  std::shared_ptr<LineThreads> threads;  ///< Where the lines' own ones run.
};

}  // namespace outrider::actors
