#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "base/limits.hpp"
#include "base/result.hpp"
#include "link/nccl_api.hpp"
#include "link/tensor_link.hpp"

/// How the two ends of an established link agree to move its payloads to NCCL, on stream 0, before
/// anything else is said on it. One end offers: its identity, and a name for a communicator. The
/// other says yes, or no and why. Then both join, each says whether it has, and hears the other:
/// only if both have, the link is over NCCL. Who has joined has exchanged a byte with the other:
/// NCCL sets up its ways between GPUs only then.
namespace outrider::link {

/// What an end has for it.
struct NcclTerms {
  std::shared_ptr<Nccl> nccl;  ///< Null: it says no.
  LinkSetup setup;             ///< Of the link over NCCL; the established one's settings.
  Duration patience = std::chrono::milliseconds(limits::link_nccl_join_ms);
};

struct NcclUpgrade {
  std::shared_ptr<TensorLink> link;  ///< To go on with.
  std::string why_not;               ///< Empty: over NCCL. Else the established one, unchanged.
};

/// Each blocks for the patience and a quarter more at most, and less when the link is closed.
/// Errors: unavailable. It is not known what the other end will do, and the link is closed.
Result<NcclUpgrade> offer_nccl(std::shared_ptr<TensorLink> link, const NcclTerms& terms);

/// The other end's part, after a first message that is an offer.
bool is_nccl_offer(const Message& message);
Result<NcclUpgrade> answer_nccl(std::shared_ptr<TensorLink> link, const Message& offer,
                                const NcclTerms& terms);

/// Exchanges a byte with itself: a process's first communicator takes longest, and a hand-over has
/// no time for it. Errors: unavailable, why NCCL cannot be used.
Result<void> warm_up(Nccl& nccl, const Clock& clock, Duration patience);

}  // namespace outrider::link
