#pragma once

#include <memory>

#include "kvstore/warm_store.hpp"
#include "model/block_tier.hpp"

namespace outrider::actors {

/// Memory of the host as a tier below an engine's pool, which copies each block there that it has
/// computed: so a block that the pool gives up is read back instead of computed. What the tier
/// below wants to have of those goes down from here; what neither has it is asked for. `below` may
/// be null. Has a thread that looks at what one engine's steps offer. Thread-safe.
std::shared_ptr<model::BlockTier> make_warm_tier(std::shared_ptr<kvstore::WarmStore> store,
                                                 std::shared_ptr<model::BlockTier> below);

}  // namespace outrider::actors
