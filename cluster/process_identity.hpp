#pragma once

#include <cstdint>

namespace outrider::cluster {

/// Drawn once for each process, never 0. CAF takes it for the process id in the ids of its nodes,
/// which come from this, network cards and disks: containers that share a host's network often have
/// process id 1 each, and a restarted one would be taken for the one before.
uint32_t process_identity();

}  // namespace outrider::cluster
