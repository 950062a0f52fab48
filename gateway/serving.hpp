#pragma once

#include <kj/async.h>
#include <spdlog/logger.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/metrics.hpp"
#include "base/system.hpp"
#include "gateway/api_keys.hpp"
#include "gateway/backend.hpp"
#include "gateway/cache_reset.hpp"
#include "gateway/generation.hpp"
#include "gateway/not_ready.hpp"
#include "gateway/prompt.hpp"
#include "gateway/text_worker.hpp"
#include "gateway/viewer.hpp"

namespace outrider::gateway {

/// Loading → ready → draining; never back.
enum class Phase : uint8_t { loading, ready, draining };
const char* to_string(Phase phase);

/// Who asks: taken from headers, or from the RPC session.
struct Caller {
  std::string request_id;  ///< Given by the client, or ours.
  std::string tenant;
  const char* protocol = "http";
  std::string trace_id = {};  ///< Of a traceparent header; may be empty.
  TimePoint arrived{0};       ///< When the request's first part was there.
};

/// What HTTP and RPC share: the models, the backend, the phase, admission. Lives on the KJ thread
/// and outlives both servers.
class Serving {
 public:
  struct Parts {
    const Clock& clock;
    ServingMetrics& metrics;
    std::shared_ptr<spdlog::logger> log;
    ApiKeys keys;
    std::string version;
    bool log_prompts = false;
    std::string admin_tenant = {};  ///< sees the figures of all; "": nobody does, with keys
    std::function<std::string(const Viewer&)> cluster_json;  ///< GET /cluster; may be empty
    std::function<void()> before_metrics;  ///< brings gauges up to date; may be empty
    std::function<bool()> has_target;      ///< may be empty
    NotReady not_ready;
    ResetCache reset_cache;  ///< may be empty
    std::function<UnixTime()> wall_time;
    std::function<uint64_t()> random_bits;  ///< For ids and drawn seeds.
  };
  explicit Serving(Parts parts);

  /// Ends the loading phase, with one model at least. The backend must outlive this object's
  /// generations.
  void set_models(std::vector<ServedModel> served, Backend& backend);
  /// No new requests from now on. Once.
  void begin_drain();
  /// Resolves when no request is open any more; after begin_drain.
  kj::Promise<void> idle() { return idle_.addBranch(); }
  /// Fails what is open with `unavailable`; after begin_drain.
  void stop();

  Phase phase() const { return phase_; }
  const Parts& parts() const { return parts_; }
  ServingMetrics& metrics() const { return parts_.metrics; }
  spdlog::logger& log() const { return *parts_.log; }
  /// By an Authorization header's value; a key that is none makes a viewer of no tenant.
  Viewer viewer(std::optional<std::string_view> authorization) const;
  /// Forgets what a tenant has cached, or what all have where it sees all. Logged.
  kj::Promise<Result<CacheResetDone>> reset_cache(const Caller& caller, bool cold);
  const ServedModels& served() const { return served_; }

  /// An error unless new work may start.
  Result<void> admit() const;
  /// Admits one request and counts it until request_ended.
  Result<void> open_request();
  void request_ended(Generation* generation);
  RequestTerms terms(std::string id, const Caller& caller);
  /// Opens the sessions of an open request, unless it is too late for them. What a deadline has
  /// lost since the arrival is taken off.
  Result<std::unique_ptr<Generation>> start(PreparedRequest request, TimePoint arrived);
  /// Where long texts are worked on.
  TextWorker& texts() { return texts_; }
  uint32_t open_requests() const { return open_requests_; }

  /// "chatcmpl-…", "cmpl-…": random, unique.
  std::string new_id(const char* prefix);

 private:
  Viewer viewer_of(std::string tenant) const;
  void log_unknown_fields(const ParsedRequest& parsed);
  void log_prompts(const PreparedRequest& request);

  Parts parts_;
  Phase phase_ = Phase::loading;
  ServedModels served_;
  Backend* backend_ = nullptr;
  uint64_t next_session_ = 0;
  uint32_t open_requests_ = 0;
  std::set<Generation*> generations_;
  bool stopped_ = false;
  kj::Own<kj::PromiseFulfiller<void>> when_idle_;  ///< Null before the drain.
  kj::ForkedPromise<void> idle_ = nullptr;
  std::set<std::string> logged_fields_;
  CacheResets cache_resets_;
  TextWorker texts_;
};

/// One generation call, from its arrival to its only line in the access log, which the destructor
/// writes; prompt text has lines of its own, and only where the operator wants it.
class RequestScope {
 public:
  RequestScope(Serving& serving, Caller caller, RequestKind kind);
  ~RequestScope();
  RequestScope(const RequestScope&) = delete;
  RequestScope& operator=(const RequestScope&) = delete;

  using Parse = std::function<Result<ParsedRequest>()>;
  /// Admission, then `parse` (of `bytes` of input; it owns what it needs), template and tokenizer,
  /// then the sessions, unless there is an error(). The promise must not outlive this.
  kj::Promise<void> start(size_t bytes, Parse parse);
  /// Why it did not start.
  const std::optional<Error>& error() const { return error_; }
  Generation& generation() { return *generation_; }
  const std::string& id() const { return id_; }
  const Caller& caller() const { return caller_; }
  int64_t created_s() const { return created_s_; }
  /// What the client was told; without it the line says how the generation failed, or 499: the
  /// client has gone.
  void set_status(int status) { status_ = status; }

 private:
  Serving& serving_;
  Caller caller_;
  RequestKind kind_;
  std::string id_;
  int64_t created_s_;
  static constexpr int k_gone = 499;
  int status_ = k_gone;
  bool open_ = false;
  std::optional<Error> error_;
  std::unique_ptr<Generation> generation_;
};

}  // namespace outrider::gateway
