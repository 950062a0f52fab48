#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "schema/messages.hpp"

namespace outrider::router {

/// One worker as placement sees it: what it said last, and what was promised to it since.
struct WorkerView {
  schema::Announce announce;
  schema::Load load;
  TimePoint heard{0};
  uint64_t place = 0;            ///< Among all that ever joined.
  bool is_late = false;          ///< Two heartbeats are missing.
  uint32_t placed_choices = 0;   ///< By this router, until their attempts are released.
  uint32_t placed_most = 0;      ///< That it had placed at once since the last load.
  uint32_t others_choices = 0;   ///< What the last load has that this router did not place.
  uint32_t charged_choices = 0;  ///< Of these, what its load may lack yet.
  uint64_t charged_rows = 0;

  /// What is surely there: this router's own as it knows them, and others' as of the last load. A
  /// load is old: what ended since is not held against anybody. What the worker cannot take it
  /// refuses itself.
  uint32_t held_choices() const { return placed_choices + others_choices; }
  uint32_t slots() const { return announce.sequences + announce.waiting; }
  bool full() const { return held_choices() >= slots(); }
  bool has_slot() const { return held_choices() < announce.sequences; }
};

inline caf::actor_addr address_of(const schema::Announce& worker) {
  return worker.role == schema::Role::draft ? worker.draft.address() : worker.target.address();
}

/// What a placement promises to a worker.
struct Charge {
  RequestKey key;
  uint64_t worker = 0;
  uint32_t choices = 0;
  uint64_t rows = 0;
  TimePoint at{0};
  bool reported = false;  ///< The worker's load includes it.
};

/// All that a router remembers; everything in it comes back with the next heartbeats and requests.
/// Time is an argument. Not thread-safe, owned by the router actor.
class WorkerTable {
 public:
  /// A new incarnation replaces the old one, charges and all.
  void announce(const schema::Announce& announce, TimePoint now);
  /// False if the worker or this incarnation is unknown: ask it to announce itself.
  bool update(const schema::Load& load, TimePoint now);
  void remove(uint64_t worker);
  /// Those that have become late since the last look: name and silence so far.
  std::vector<std::pair<std::string, Duration>> find_late(TimePoint now);
  /// Drops workers that were silent too long; returns them.
  std::vector<schema::Announce> age_out(TimePoint now);

  /// Not twice for the same key.
  void charge(const Charge& charge);
  /// The attempt was given up, or the whole session has ended: nothing of it burdens anyone.
  void release(RequestKey attempt);
  void release_session(uint64_t session);

  const std::map<uint64_t, WorkerView>& workers() const { return workers_; }
  /// What became of the hints of all that were ever here, those that have gone included, since each
  /// was heard of first.
  HintCounters hints() const;
  /// How many drafts could draft for a target: of its tokenizer, and not its own process's second
  /// face, the model that drafts there.
  uint32_t drafts_for(const schema::Announce& target) const;
  /// Workers, none that leaves, of the request's model whose context holds its tokens and at least
  /// one more; with a fingerprint, only twins of it.
  std::vector<const WorkerView*> candidates(const schema::PlaceRequest& request) const;

 private:
  void remember_hints(const schema::Load& load);
  void mark_reported(uint64_t worker, TimePoint made_until);
  template <class Which>
  void release_if(Which which);
  void uncharge(const Charge& charge);

  std::map<uint64_t, WorkerView> workers_;
  uint64_t joined_ = 0;
  /// A worker's totals since its start, as it said them first and last.
  struct Told {
    HintCounters first;
    HintCounters last;
  };
  std::map<std::pair<uint64_t, uint64_t>, Told> hints_;  ///< by worker and incarnation
  HintCounters hints_of_others_;                         ///< Of those that hints_ had no room for.
  std::vector<Charge> charges_;                          ///< One for each attempt that is placed.
};

}  // namespace outrider::router
