#pragma once

#include <memory>

#include "kvstore/cold_store.hpp"
#include "model/block_tier.hpp"

namespace outrider::actors {

/// The store as the tier below an engine's pool: here, and nowhere else, block ids meet both the
/// pool's bytes and the database's. Has a thread that looks at what one engine's steps offer.
/// Thread-safe; keeps the store alive.
std::shared_ptr<model::BlockTier> make_store_tier(std::shared_ptr<kvstore::ColdStore> store);

}  // namespace outrider::actors
