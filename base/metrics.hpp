#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/request.hpp"

namespace outrider {

/// Brings a counter up to a total that something else counts.
void raise_to(prometheus::Counter& counter, double total);
/// The same of a histogram: `counts` of its classes, the last of which has no upper end.
void raise_to(prometheus::Histogram& histogram, std::span<const uint64_t> counts, double sum);

/// An instrument for each value of one label, made at first use.
template <class Instrument>
class Labelled {
 public:
  /// `others`: labels of each instrument.
  Labelled(prometheus::Family<Instrument>& family, std::string label,
           prometheus::Labels others = {})
      : family_(&family), label_(std::move(label)), others_(std::move(others)) {}
  Instrument& of(std::string_view value) const {
    prometheus::Labels labels = others_;
    labels[label_] = value;
    return family_->Add(labels);
  }

 private:
  prometheus::Family<Instrument>* family_;
  std::string label_;
  prometheus::Labels others_;
};
using LabelledCounter = Labelled<prometheus::Counter>;
using LabelledGauge = Labelled<prometheus::Gauge>;

/// The instruments of the KV store. Reasons are kvstore's own closed sets.
struct StoreMetrics {
  prometheus::Gauge& available;  ///< 0 or 1
  prometheus::Gauge& blocks;
  prometheus::Gauge& bytes;
  prometheus::Gauge& pinned_bytes;
  prometheus::Gauge& file_bytes;
  prometheus::Gauge& queued_bytes;
  prometheus::Gauge& loads_waiting;
  prometheus::Counter& loaded_bytes;
  prometheus::Counter& stored_bytes;
  prometheus::Counter& payload_written_bytes;    ///< to its files, what moves again included
  prometheus::Counter& salvaged;                 ///< damaged directories
  prometheus::Counter& quarantined;              ///< likewise
  prometheus::Counter& refused_pins;             ///< blocks
  prometheus::Histogram& load_duration_seconds;  ///< classes: k_store_load_seconds
  LabelledCounter loads;    ///< by why each ended; "complete": with all that was asked for
  LabelledCounter skipped;  ///< blocks that were not stored, by reason
  LabelledCounter removed;  ///< blocks, by reason
  LabelledCounter outages;  ///< that began, by reason
  /// Of tenants that the settings name, nobody else.
  LabelledGauge tenant_bytes, tenant_quota_bytes;
  LabelledCounter tenant_over_quota;  ///< blocks
};

/// What is counted of the requests for one model, as they move.
struct RequestMetrics {
  RequestMetrics(prometheus::Registry& registry, const std::string& model_name);

  LabelledCounter success;   ///< finished choices, by reason
  LabelledCounter outcomes;  ///< requests, by how they ended
  prometheus::Counter& prompt_tokens;
  prometheus::Counter& generation_tokens;
  prometheus::Histogram& time_to_first_token_seconds;
  prometheus::Histogram& inter_token_latency_seconds;
  prometheus::Histogram& time_per_output_token_seconds;
  prometheus::Histogram& e2e_latency_seconds;
  prometheus::Histogram& queue_time_seconds;
  prometheus::Histogram& prefill_time_seconds;
  prometheus::Histogram& decode_time_seconds;
  prometheus::Histogram& request_prompt_tokens;
  prometheus::Histogram& request_generation_tokens;
};

/// The instruments of a server. Names and types are vLLM's where the meaning is the same, so that
/// its dashboards work; our own start with `outrider_` and carry their unit. Each carries the label
/// model_name: of requests, that of the model that they are for, of all else the first one's.
/// All instruments are thread-safe; recording never locks for long.
class ServingMetrics {
 public:
  explicit ServingMetrics(const std::string& model_name);

  /// Prometheus text format, version 0.0.4.
  std::string render() const;
  /// From now on nothing is rendered that only an engine of this process could count: zeros would
  /// say that there was nothing.
  void leave_out_engine() { has_engine_ = false; }

  /// Made at first use; for names of served models only, never for what a client says.
  RequestMetrics& requests(const std::string& model_name);
  prometheus::Counter& http_responses(int status);
  /// Of the store below this model's pool. They appear with the first call, which is not
  /// thread-safe.
  StoreMetrics& store();

 private:
  std::map<std::string, std::string> labels_;
  prometheus::Registry registry_;

  prometheus::Gauge& gauge(const char* name, const char* help);
  prometheus::Counter& counter(const char* name, const char* help);
  prometheus::Histogram& histogram(const char* name, const char* help,
                                   prometheus::Histogram::BucketBoundaries boundaries);

  LabelledCounter labelled(const char* name, const char* help, const char* label);
  LabelledGauge labelled_gauge(const char* name, const char* help, const char* label);

  std::atomic<bool> has_engine_{true};
  std::unique_ptr<StoreMetrics> store_;
  std::mutex requests_mutex_;
  std::map<std::string, RequestMetrics> requests_;  ///< By model.
  prometheus::Family<prometheus::Counter>& http_family_;

 public:
  // -- state of the engine, set from its snapshots --------------------------------------------
  prometheus::Gauge& requests_running;  ///< choices
  prometheus::Gauge& requests_waiting;
  prometheus::Gauge& requests_parked;  ///< choices whose reader is slow
  prometheus::Gauge& kv_cache_usage;   ///< 0 … 1
  prometheus::Gauge& kv_blocks_total;
  prometheus::Gauge& kv_blocks_free;
  prometheus::Gauge& prefix_cache_blocks;
  prometheus::Gauge& prefix_cache_pinned_blocks;
  prometheus::Gauge& host_blocks;        ///< in memory of the host below the pool
  prometheus::Gauge& host_blocks_total;  ///< that it has room for
  prometheus::Gauge& sessions_open;
  prometheus::Gauge& connections_open;
  prometheus::Gauge& cluster_connections;  ///< of members
  prometheus::Gauge& cluster_line_ends;
  LabelledCounter cluster_refused;      ///< connections, by reason
  LabelledGauge cluster_members;        ///< by role
  LabelledCounter cluster_transitions;  ///< of members, by event
  prometheus::Counter& placed_again;    ///< sessions, each time
  prometheus::Counter& preemptions;
  prometheus::Counter& engine_steps;
  prometheus::Counter& prefix_cache_queries;    ///< tokens
  prometheus::Counter& prefix_cache_hits;       ///< tokens
  prometheus::Counter& prefix_cache_hits_warm;  ///< of these, what the host's memory brought
  prometheus::Counter& prefix_cache_hits_cold;  ///< the store
  prometheus::Counter& prefix_cache_hits_peer;  ///< another target
  prometheus::Counter& prefix_cache_evictions;
  prometheus::Counter& host_evictions;
  prometheus::Counter& tier_lost;            ///< blocks
  LabelledCounter prefix_cache_pins_denied;  ///< blocks, by reason
  prometheus::Counter& drafts;               ///< steps of a sequence that verified hints
  prometheus::Counter& draft_tokens;         ///< hints verified
  prometheus::Counter& accepted_tokens;      ///< of these, those that came true
  LabelledCounter accepted_at;               ///< the same, by place in the draft
  LabelledCounter draft_tokens_of;           ///< hints verified, by source
  LabelledCounter accepted_tokens_of;        ///< of these, those that came true
  LabelledCounter hints;                     ///< that came, by outcome
};

}  // namespace outrider
