#pragma once

#include <spdlog/logger.h>

#include <caf/typed_event_based_actor.hpp>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "router/admission.hpp"
#include "router/lease_table.hpp"
#include "router/worker_table.hpp"
#include "schema/messages.hpp"

namespace outrider::router {

using RouterActor = schema::RouterHandle::extend<caf::reacts_to<caf::tick_atom>>;

/// Thin shell around WorkerTable, admit() and place(): soft state in, decisions out. Never in the
/// token path; when it is lost, streams go on and a new one relearns everything.
class RouterState {
 public:
  RouterState() = default;

  void start(RouterActor::pointer self, std::shared_ptr<spdlog::logger> log);
  RouterActor::behavior_type make_behavior();

 private:
  /// A session with something placed: its share is taken until it ends.
  struct Client {
    uint64_t session = 0;
    std::string model;
    std::string tenant;
    uint32_t choices = 0;
  };
  /// Waits for a worker that can serve it.
  struct Held {
    schema::PlaceRequest request;
    TimePoint until{0};
  };

  void place(const schema::PlaceRequest& request);
  /// False if no known worker can serve it.
  bool try_place(const schema::PlaceRequest& request);
  void hold(const schema::PlaceRequest& request);
  void retry_held();
  void announce(const schema::Announce& announce);
  /// Tells a worker that nobody here has use for it: a target that would answer otherwise than is
  /// served here, a draft whose tokenizer no target has, had (one that is away for a moment
  /// comes back) or is to have.
  bool refuse_worker(const schema::Announce& announce);
  bool is_another(uint64_t worker, const caf::actor_addr& actor) const;
  Result<void> check_target(const schema::Announce& announce) const;
  Result<void> check_draft(const schema::Announce& announce) const;
  /// Of those that it has.
  void refuse_others();
  void send(const std::vector<LeaseTable::Grant>& grants);
  /// Each target how many drafts it may have, where that has changed.
  void tell_drafts();
  void remove(uint64_t worker);
  void lost(const caf::down_msg& down);
  /// What is news in it.
  void tell_news(const schema::Load& load);
  void tell_of_late();
  void tell_of_namesakes(const schema::Announce& announce);
  void look_for_silence();
  void tick();
  void admit_client(const schema::PlaceRequest& request);
  TenantShares shares(const schema::PlaceRequest& request) const;
  void refuse(const schema::PlaceRequest& request, schema::Refusal refusal);
  schema::WorkerList list() const;
  TimePoint now() const;

  RouterActor::pointer self_ = nullptr;
  std::shared_ptr<spdlog::logger> log_;
  WorkerTable table_;
  LeaseTable leases_;
  std::map<uint64_t, uint32_t> drafts_told_;              ///< By target.
  std::map<std::string, std::string> target_tokenizers_;  ///< By it: a model that has it.
  std::vector<schema::Served> served_;                    ///< Empty: whatever joins.
  std::map<caf::actor_addr, Client> clients_;
  /// Choices, by model and tenant.
  std::map<std::string, std::map<std::string, uint32_t>> in_flight_;
  std::deque<Held> held_;
  TimePoint ticked_{0};
  schema::WorkerList counted_;  ///< What has happened; no workers.
};

/// Each placement is explained in `log`, at debug.
RouterActor::behavior_type router_actor(RouterActor::stateful_pointer<RouterState> self,
                                        std::shared_ptr<spdlog::logger> log);

}  // namespace outrider::router
