#pragma once

#include <memory>

#include "actors/peer_lines.hpp"
#include "cluster/gate.hpp"
#include "link/link_end.hpp"

namespace outrider::tools {

/// Lines between targets over a gate of this process: its own, and those that it can dial.
actors::PeerLines peer_lines(std::shared_ptr<cluster::Gate> gate,
                             std::shared_ptr<link::LinkCounters> counters);

}  // namespace outrider::tools
