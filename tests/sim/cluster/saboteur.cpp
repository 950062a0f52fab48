#include "tests/sim/cluster/saboteur.hpp"

#include <chrono>
#include <utility>

#include "actors/block_wire.hpp"

namespace outrider::sim::cluster {

using std::chrono::milliseconds;

bool Saboteur::on_send(const Parcel& parcel) {
  if (bug_ == PlantedBug::stale_generation) {
    if (const auto* begin = content_of<schema::SubmitBegin>(parcel.content)) {
      generations_[begin->key.session] = begin->key.generation;
    }
    if (content_of<schema::Tokens>(parcel.content) != nullptr) say_again(parcel);
  }
  if (bug_ != PlantedBug::lost_done || !content_of<schema::Done>(parcel.content)) return true;
  const Slot* slot = cluster_.slot_of(parcel.from);
  return slot == nullptr || slot->number != 0;
}

void Saboteur::exchange_block(link::Message& message) {
  if (message.tag >= actors::k_wait_tag) return;  // No block.
  const link::Bytes before = std::exchange(block_, message.bytes);
  if (before.size() > 0) message.bytes = before;
}

/// Late, and under the generation that has taken over meanwhile, if one has.
void Saboteur::say_again(const Parcel& parcel) {
  const Duration delay = milliseconds(100 + random_.below(4'000));
  cluster_.runtime().time().after(delay, [this, parcel] {
    const RequestKey key = *key_of(parcel.content);
    const uint32_t generation = generations_[key.session];
    if (generation == key.generation) return;
    Parcel stale = parcel;
    stale.content = with_key(parcel.content, {key.session, generation});
    cluster_.network().deliver(stale);
    cluster_.runtime().run_actors();
  });
}

}  // namespace outrider::sim::cluster
