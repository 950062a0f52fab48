#pragma once

#include "base/hash.hpp"
#include "kernels/ops.hpp"
#include "model/loaded_model.hpp"

namespace outrider::model {

/// Digest of all that the bits of a KV block depend on besides its tokens: the network, how its
/// positions turn, what is stored for each layer and in which kind, the numerics, and the window
/// that rows attend to (0: none). Not in it:
/// context length, batch, slots, pool, threads, host. Blocks of equal namespaces can be exchanged.
Digest256 make_kv_namespace(const LoadedModel& model, const kernels::KvKinds& kinds,
                            uint32_t local_window);

}  // namespace outrider::model
