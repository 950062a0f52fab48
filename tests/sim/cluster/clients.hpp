#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "schema/client_stream.hpp"
#include "tests/sim/cluster/cluster.hpp"
#include "tests/sim/cluster/report.hpp"

namespace outrider::sim::cluster {

/// What one client saw: all of it. Says at once when an event could not follow the ones before.
class SeenStream final : public schema::ClientStream {
 public:
  SeenStream(Report& report, uint64_t session, std::shared_ptr<const GenerationRequest> request)
      : report_(report), session_(session), request_(std::move(request)) {}

  Level push(schema::StreamEvent event) override;

  Level level = Level::flowing;
  std::map<uint32_t, std::vector<TokenOut>> choices;
  std::vector<TokenOut> prompt;
  std::map<uint32_t, Finish> finishes;
  std::optional<schema::StreamDone> done;

 private:
  void take_prompt(const schema::StreamTokens& tokens);
  void complain(const std::string& what);

  Report& report_;
  uint64_t session_;
  std::shared_ptr<const GenerationRequest> request_;
};

struct Client {
  uint64_t session = 0;
  GenerationRequest request;
  std::shared_ptr<SeenStream> stream;
  ProcessId gateway = 0;
  bool gave_up = false;       ///< Cancelled, or gone.
  bool lost_gateway = false;  ///< Nobody hears its end.
  bool is_calm = false;       ///< Nothing has gone wrong since it came.
  uint32_t mishaps = 0;       ///< Faults of the cluster while it was there, and its own losses.
  /// When it ended, whether its gateway had a target, or had had one just before.
  std::optional<bool> had_target;
};

/// Requests, and what their clients do: read slowly, cancel, go.
class Clients {
 public:
  Clients(Cluster& cluster, Report& report, Random& random, const Scenario& scenario)
      : cluster_(cluster), report_(report), random_(random), scenario_(scenario) {}

  /// `calm`: a plain request, of which only its answer is acceptable.
  void open(bool calm);
  /// One of them does something.
  void bother();
  /// All read on, from now on at once.
  void read_on();

  /// A fault strikes the cluster.
  void mishap();
  void mishap_of(uint64_t session);
  /// The process is about to die.
  void before_kill(ProcessId gateway);

  bool all_ended() const;
  /// Nothing is computed for it any more, or it may be given up at any time.
  bool may_be_over(uint64_t session) const;
  /// Of those that have ended since the last call, whether their gateway has a target.
  void note_ends(const std::function<bool(ProcessId gateway)>& has_target);
  /// A session that has not ended; 0: there is none.
  uint64_t one_that_waits();
  /// Of all that are over: the right terminal event and the right text.
  void check() const;
  size_t count() const { return clients_.size(); }
  size_t done() const;  ///< Of them, those that got all they asked for.
  uint64_t tokens() const;

 private:
  GenerationRequest draw_request();
  void begin_like_another(GenerationRequest& request);
  void draw_stops(GenerationRequest& request);
  void check(const Client& client) const;
  void check_end(const Client& client) const;
  void check_text(const Client& client) const;
  void check_prompt(const Client& client, uint64_t twist) const;
  void check_choice(const Client& client, uint32_t choice, uint64_t twist) const;
  bool may_end_with(const Client& client, ErrorCode code) const;
  uint64_t twist_of(const Client& client) const;
  const Slot* desk_of(const Client& client) const;
  void resume(Client& client);

  Cluster& cluster_;
  Report& report_;
  Random& random_;
  const Scenario& scenario_;
  std::deque<Client> clients_;
};

}  // namespace outrider::sim::cluster
