#include "tests/sim/cluster/simulation.hpp"

#include <array>
#include <chrono>
#include <span>

#include "base/hash.hpp"
#include "base/limits.hpp"
#include "tests/sim/cluster/saboteur.hpp"
#include "tests/sim/cluster/watch.hpp"

namespace outrider::sim::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// After trouble: a session may have to wait out its probes and all of its tries.
constexpr Duration k_patience = seconds(90);
/// Then workers are known again, and what was charged is reported; after two of them drafts have
/// forgotten the runs whose end they have not heard of.
constexpr Duration k_settle = seconds(6);
static_assert(2 * k_settle >
              (limits::draft_run_beats_max + 2) * milliseconds(limits::heartbeat_interval_ms));
constexpr uint32_t k_calm_requests = 3;
/// Far beyond the longest run.
constexpr uint64_t k_steps_max = 3'000'000;

/// One run.
class Play {
 public:
  Play(const Scenario& scenario, std::ostream* trace)
      : scenario_(scenario),
        random_(~scenario.seed),
        cluster_(scenario_, random_),
        report_(cluster_.runtime().time(), trace),
        clients_(cluster_, report_, random_, scenario_),
        faults_(cluster_, clients_, report_, random_, scenario_),
        saboteur_(cluster_, random_, scenario.bug),
        watch_(cluster_, faults_, clients_, report_, scenario_) {
    cluster_.network().on_send = [this](const Parcel& parcel) { return on_send(parcel); };
    cluster_.network().on_loss = [this](const Parcel& parcel) { on_loss(parcel); };
    cluster_.network().on_damage = [this](const Parcel& parcel) { count_mishap(parcel); };
    cluster_.network().on_arrival = [this](const Parcel& parcel) { on_arrival(parcel); };
    cluster_.lines().on_late_end = [this](Duration waited) {
      report_.violation("a line's thread waits for " + std::to_string(to_ms(waited)) +
                        " ms while it is to end");
    };
  }

  /// While those that hear what actors do at their end are there.
  ~Play() { cluster_.runtime().stop(); }

  Outcome run() {
    report_.note(describe(scenario_));
    plan();
    watch_.begin();
    faults_.look();
    pass(scenario_.trouble);
    faults_.heal();
    clients_.read_on();
    wait_for_ends();
    pass(k_settle);
    for (uint32_t i = 0; i < k_calm_requests; ++i) clients_.open(true);
    wait_for_ends();
    pass(k_settle);
    watch_.check_rest();
    clients_.check();
    return outcome();
  }

 private:
  /// At random times while there is trouble.
  void scatter(uint32_t count, Timeline::Event event) {
    const auto ms = static_cast<uint32_t>(to_ms(scenario_.trouble));
    for (uint32_t i = 0; i < count; ++i) {
      time().after(milliseconds(random_.below(ms)), event);
    }
  }
  void plan() {
    scatter(scenario_.requests, [this] { clients_.open(false); });
    scatter(scenario_.requests, [this] { clients_.bother(); });
    scatter(scenario_.faults, [this] { faults_.strike(); });
  }
  void pass(Duration by) {
    const TimePoint end = time().now() + by;
    while (step(end)) {
    }
    cluster_.runtime().run_actors();
  }
  void wait_for_ends() {
    const TimePoint end = time().now() + k_patience;
    while (!clients_.all_ended() && step(end)) {
    }
  }
  /// False: it is `end`, or the run shall not go on.
  bool step(TimePoint end) {
    if (steps_ == k_steps_max) report_.violation("something is always due");
    if (steps_++ >= k_steps_max || !time().step(end)) return false;
    cluster_.runtime().run_actors();
    return true;
  }

  bool on_send(const Parcel& parcel) {
    watch_.on_send(parcel);
    faults_.on_send(parcel);
    return saboteur_.on_send(parcel);
  }
  void on_loss(const Parcel& parcel) {
    if (report_.traces()) trace("lost ", parcel);
    if (scenario_.is_hostile) count_mishap(parcel);
  }
  /// What may cost a session one of its tries.
  void count_mishap(const Parcel& parcel) {
    const bool places = content_of<schema::SubmitBegin>(parcel.content) != nullptr ||
                        content_of<schema::PromptPart>(parcel.content) != nullptr ||
                        content_of<schema::SubmitEnd>(parcel.content) != nullptr;
    if (places) clients_.mishap_of(key_of(parcel.content)->session);
  }
  void on_arrival(const Parcel& parcel) {
    if (report_.traces()) trace("", parcel);
    const auto key = key_of(parcel.content).value_or(RequestKey{});
    const std::array<uint64_t, 6> words = {digest_,     static_cast<uint64_t>(time().now().count()),
                                           parcel.from, parcel.to,
                                           key.session, key.generation};
    digest_ = hash64(std::as_bytes(std::span(words)));
    ++arrived_;
  }
  void trace(const char* what, const Parcel& parcel) {
    const auto name = [&](ProcessId process) {
      const Slot* slot = cluster_.slot_of(process);
      return slot == nullptr ? "#" + std::to_string(process) : slot->name();
    };
    report_.note(what + name(parcel.from) + " -> " + name(parcel.to) + ": " +
                 describe(parcel.content));
  }
  Outcome outcome() {
    Outcome out;
    out.violations = report_.violations();
    out.digest = digest_;
    out.messages = arrived_;
    out.requests = clients_.count();
    out.done = clients_.done();
    out.tokens = clients_.tokens();
    out.blocks_loaded = cluster_.blocks_loaded();
    out.blocks_handed_over = cluster_.blocks_handed_over();
    out.time = time().now();
    return out;
  }
  Timeline& time() { return cluster_.runtime().time(); }

  const Scenario scenario_;
  Random random_;
  Cluster cluster_;
  Report report_;
  Clients clients_;
  Faults faults_;
  Saboteur saboteur_;
  Watch watch_;
  uint64_t steps_ = 0;
  uint64_t digest_ = 0;
  uint64_t arrived_ = 0;
};

}  // namespace

Outcome simulate(const Scenario& scenario, std::ostream* trace) {
  return Play(scenario, trace).run();
}

}  // namespace outrider::sim::cluster
