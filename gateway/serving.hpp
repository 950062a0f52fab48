#pragma once

#include <spdlog/logger.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "base/clock.hpp"
#include "base/metrics.hpp"
#include "gateway/api_keys.hpp"
#include "gateway/backend.hpp"
#include "gateway/generation.hpp"
#include "gateway/prompt.hpp"

namespace outrider::gateway {

/// Loading → ready → draining; never back.
enum class Phase : uint8_t { loading, ready, draining };
const char* to_string(Phase phase);

/// Who asks: taken from headers, or from the RPC session.
struct Caller {
  std::string request_id;  ///< Given by the client, or ours.
  std::string tenant;
  const char* protocol = "http";
};

/// What HTTP and RPC share: the model, the backend, the phase, admission. Lives on the KJ thread
/// and outlives both servers.
class Serving {
 public:
  struct Parts {
    const Clock& clock;
    ServingMetrics& metrics;
    std::shared_ptr<spdlog::logger> log;
    ApiKeys keys;
    std::string version;
    std::function<std::string()> cluster_json;  ///< GET /cluster; may be empty
    std::function<void()> before_metrics;       ///< brings gauges up to date; may be empty
  };
  explicit Serving(Parts parts);

  /// Ends the loading phase. The backend must outlive this object's generations.
  void set_model(ServedModel served, Backend& backend);
  void begin_drain() { phase_ = Phase::draining; }

  Phase phase() const { return phase_; }
  const Parts& parts() const { return parts_; }
  ServingMetrics& metrics() const { return parts_.metrics; }
  spdlog::logger& log() const { return *parts_.log; }
  /// Null while loading.
  const std::shared_ptr<const ServedModel>& served() const { return served_; }

  /// An error unless new work may start.
  Result<void> admit() const;
  /// Admission, template, tokenizer, then the sessions.
  Result<std::unique_ptr<Generation>> start(ParsedRequest parsed, const Caller& caller,
                                            const std::string& id);
  void generation_ended();
  uint32_t open_requests() const { return open_requests_; }

  /// "chatcmpl-…", "cmpl-…": random, unique.
  std::string new_id(const char* prefix);
  int64_t unix_time_s() const;

 private:
  void log_unknown_fields(const ParsedRequest& parsed);

  Parts parts_;
  Phase phase_ = Phase::loading;
  std::shared_ptr<const ServedModel> served_;
  Backend* backend_ = nullptr;
  uint64_t next_session_ = 0;
  uint32_t open_requests_ = 0;
  std::set<std::string> logged_fields_;
};

/// One generation call, from its arrival to its only line in the access log, which the destructor
/// writes. Never holds prompt text.
class RequestScope {
 public:
  RequestScope(Serving& serving, Caller caller, RequestKind kind);
  ~RequestScope();
  RequestScope(const RequestScope&) = delete;
  RequestScope& operator=(const RequestScope&) = delete;

  Result<void> start(ParsedRequest parsed);
  Generation& generation() { return *generation_; }
  const std::string& id() const { return id_; }
  const Caller& caller() const { return caller_; }
  int64_t created_s() const { return created_s_; }
  /// What the client was told; without it the line says 499, client gone.
  void set_status(int status) { status_ = status; }

 private:
  Serving& serving_;
  Caller caller_;
  RequestKind kind_;
  std::string id_;
  int64_t created_s_;
  TimePoint arrived_;
  int status_ = 499;
  std::unique_ptr<Generation> generation_;
};

}  // namespace outrider::gateway
