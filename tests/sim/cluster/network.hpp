#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/philox.hpp"
#include "tests/sim/cluster/parcel.hpp"
#include "tests/sim/cluster/proxy.hpp"
#include "tests/sim/cluster/runtime.hpp"

namespace outrider::sim::cluster {

/// How messages travel. Without a chance of loss, repetition and delay it is what CAF gives over
/// TCP: in order, none lost and none twice, until the connection breaks.
struct Travel {
  Duration least{std::chrono::microseconds(100)};
  Duration most{std::chrono::milliseconds(2)};
  float lost = 0;
  float repeated = 0;
  float late = 0;  ///< Then up to `late_most` more, and others overtake it.
  Duration late_most{0};
};

/// All connections between processes. One is made when it is needed, and breaks when an end dies or
/// hears nothing for limits::heartbeat_timeout_ms: then what is on its way is lost, and each end's
/// proxies of the other's actors end, as soon as it notices. Handles in messages become proxies on
/// their way. Any two processes talk directly.
class Network {
 public:
  Network(Runtime& runtime, Random& random, Travel travel)
      : runtime_(runtime), random_(random), travel_(travel) {}

  /// What `viewer` sees of the actor: a dead proxy where there is no way to it.
  caf::strong_actor_ptr view(ProcessId viewer, const caf::strong_actor_ptr& actor);
  bool reaches(ProcessId from, ProcessId to) const;
  /// Whether bytes of a connection of their own get there now.
  bool carries(ProcessId from, ProcessId to) const;
  void send(const Proxy& by, caf::mailbox_element& what);

  void cut(ProcessId from, ProcessId to);
  void mend(ProcessId from, ProcessId to);
  /// Mends everything; from now on messages travel as `travel` says.
  void heal(Travel travel);
  void pause(ProcessId process);
  void resume(ProcessId process);
  /// Actors first. `in_flight` arrives before its end does, or is lost.
  void kill(ProcessId process, bool in_flight);
  /// Each connection breaks with this chance, as if an end had waited too long.
  void shake(float chance);

  /// Called with each message that is sent; false: it vanishes.
  std::function<bool(const Parcel&)> on_send;
  /// Called with each message that is lost.
  std::function<void(const Parcel&)> on_loss;
  /// Called with each message that is repeated or late, and lives.
  std::function<void(const Parcel&)> on_damage;
  /// Called with each message that is handed over.
  std::function<void(const Parcel&)> on_arrival;
  /// Hands over at once, whatever there is between the two.
  void deliver(const Parcel& parcel);

  uint64_t sent() const { return sent_; }
  size_t in_flight() const;

 private:
  struct Item {
    enum class Kind : uint8_t { message, ended, closed };
    Kind kind = Kind::message;
    TimePoint due{0};
    Parcel parcel;            ///< Of a message.
    caf::actor_id actor = 0;  ///< That ended.
  };
  struct End {
    ProcessId process = 0;
    bool open = true;
    std::deque<Item> in;    ///< By time; of equal ones in order.
    TimePoint last_due{0};  ///< Of those in order: who is late is overtaken, nobody else.
    std::optional<TimePoint> mute_since;
  };
  struct Connection {
    uint64_t serial = 0;
    std::array<End, 2> ends;
  };
  using Pair = std::pair<ProcessId, ProcessId>;  ///< The smaller first.
  using Connections = std::map<Pair, Connection>;

  static Pair pair_of(ProcessId a, ProcessId b) { return {std::min(a, b), std::max(a, b)}; }
  static size_t end_of(ProcessId self, ProcessId other) { return self < other ? 0 : 1; }
  bool is_cut(ProcessId from, ProcessId to) const { return cuts_.contains({from, to}); }
  bool connect(ProcessId from, ProcessId to);
  void push(Pair pair, size_t end, Item item);
  void pump(Pair pair, size_t end);
  void close(Pair pair, size_t end);
  void notice_close(Pair pair, size_t end);
  void end_proxies(ProcessId viewer, ProcessId home);
  void ended(caf::actor_id actor, ProcessId home);
  void clear(End& end);
  void lose(const Parcel& parcel);
  /// After the ways have changed: who hears nothing, who hears again.
  void review();
  void check_silence(Pair pair, size_t end, uint64_t serial, TimePoint since);
  Duration travel_time();

  Runtime& runtime_;
  Random& random_;
  Travel travel_;
  Connections connections_;
  uint64_t serials_ = 0;
  std::set<std::pair<ProcessId, ProcessId>> cuts_;
  std::map<std::pair<ProcessId, caf::actor_id>, caf::strong_actor_ptr> proxies_;  ///< By viewer.
  std::set<caf::actor_id> watched_;
  std::set<caf::actor_id> gone_;
  uint64_t sent_ = 0;
};

}  // namespace outrider::sim::cluster
