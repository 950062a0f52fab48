#include "base/metrics.hpp"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/store_load_seconds.hpp"

namespace outrider {
namespace {

using Boundaries = prometheus::Histogram::BucketBoundaries;

Boundaries latency_buckets() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25, 0.5,
          0.75,  1.0,   2.5,  5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0};
}

Boundaries token_gap_buckets() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
          0.2,   0.3,    0.4,   0.5,  0.75,  1.0,  2.5,   5.0, 10.0};
}

Boundaries token_count_buckets() {
  return {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10'000, 20'000, 50'000, 100'000};
}

prometheus::Counter& counter_of(prometheus::Registry& registry, const std::string& model_name,
                                const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(
      {{"model_name", model_name}});
}

LabelledCounter labelled_of(prometheus::Registry& registry, const std::string& model_name,
                            const char* name, const char* help, const char* label) {
  return {prometheus::BuildCounter().Name(name).Help(help).Register(registry),
          label,
          {{"model_name", model_name}}};
}

prometheus::Histogram& histogram_of(prometheus::Registry& registry, const std::string& model_name,
                                    const char* name, const char* help, Boundaries boundaries) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(
      {{"model_name", model_name}}, std::move(boundaries));
}

bool is_of_an_engine(const prometheus::MetricFamily& family) {
  constexpr std::string_view k_names[] = {"outrider_engine_",   "vllm:num_preemptions_",
                                          "vllm:prefix_cache_", "outrider_prefix_cache_",
                                          "outrider_kv_host_",  "outrider_kv_tier_"};
  return std::ranges::any_of(k_names,
                             [&](std::string_view name) { return family.name.starts_with(name); });
}

}  // namespace

RequestMetrics::RequestMetrics(prometheus::Registry& registry, const std::string& model_name)
    : success(labelled_of(registry, model_name, "vllm:request_success_total",
                          "Finished requests by reason.", "finished_reason")),
      outcomes(labelled_of(registry, model_name, "outrider_request_outcomes_total",
                           "Terminal messages by outcome: one per request.", "outcome")),
      prompt_tokens(counter_of(registry, model_name, "vllm:prompt_tokens_total",
                               "Prompt tokens of finished requests.")),
      generation_tokens(counter_of(registry, model_name, "vllm:generation_tokens_total",
                                   "Tokens sent to clients.")),
      time_to_first_token_seconds(
          histogram_of(registry, model_name, "vllm:time_to_first_token_seconds",
                       "From arrival to the first token.", latency_buckets())),
      inter_token_latency_seconds(
          histogram_of(registry, model_name, "vllm:inter_token_latency_seconds",
                       "Between two streamed tokens.", token_gap_buckets())),
      time_per_output_token_seconds(
          histogram_of(registry, model_name, "vllm:request_time_per_output_token_seconds",
                       "Mean over a choice's tokens after the first.", token_gap_buckets())),
      e2e_latency_seconds(histogram_of(registry, model_name, "vllm:e2e_request_latency_seconds",
                                       "From arrival to the last token.", latency_buckets())),
      queue_time_seconds(histogram_of(registry, model_name, "vllm:request_queue_time_seconds",
                                      "From the engine's inbox to the first row in a batch.",
                                      latency_buckets())),
      prefill_time_seconds(histogram_of(registry, model_name, "vllm:request_prefill_time_seconds",
                                        "From the first row to the first token.",
                                        latency_buckets())),
      decode_time_seconds(histogram_of(registry, model_name, "vllm:request_decode_time_seconds",
                                       "From the first token to the last.", latency_buckets())),
      request_prompt_tokens(histogram_of(registry, model_name, "vllm:request_prompt_tokens",
                                         "Prompt tokens of a request.", token_count_buckets())),
      request_generation_tokens(histogram_of(registry, model_name, "vllm:request_generation_tokens",
                                             "Generated tokens of a request.",
                                             token_count_buckets())) {}

ServingMetrics::ServingMetrics(const std::string& model_name)
    : labels_{{"model_name", model_name}},
      http_family_(prometheus::BuildCounter()
                       .Name("outrider_http_responses_total")
                       .Help("HTTP responses by status.")
                       .Labels(labels_)
                       .Register(registry_)),
      requests_running(gauge("vllm:num_requests_running", "Choices in the running batch.")),
      requests_waiting(gauge("vllm:num_requests_waiting", "Choices waiting to be scheduled.")),
      requests_parked(gauge("outrider_requests_parked", "Choices whose reader is slow.")),
      kv_cache_usage(gauge("vllm:kv_cache_usage_perc", "KV blocks in use, 1 is all of them.")),
      kv_blocks_total(gauge("outrider_kv_blocks_total", "KV blocks of the pool.")),
      kv_blocks_free(gauge("outrider_kv_blocks_free", "KV blocks that no request holds.")),
      prefix_cache_blocks(
          gauge("outrider_prefix_cache_blocks", "KV blocks that can be found by their content.")),
      prefix_cache_pinned_blocks(
          gauge("outrider_prefix_cache_pinned_blocks", "Of these, blocks that are evicted last.")),
      host_blocks(gauge("outrider_kv_host_blocks", "KV blocks in memory of the host.")),
      host_blocks_total(
          gauge("outrider_kv_host_blocks_total", "KV blocks that this memory has room for.")),
      sessions_open(gauge("outrider_sessions_open", "Sessions without a terminal message yet.")),
      connections_open(gauge("outrider_connections_open", "Open client connections.")),
      cluster_connections(
          gauge("outrider_cluster_connections", "Processes connected to the cluster's port.")),
      cluster_line_ends(gauge("outrider_cluster_line_ends",
                              "Ends of lines on which targets hand KV blocks over, here.")),
      cluster_refused(labelled("outrider_cluster_refused_total",
                               "Connections to the cluster's port that were not let in, or cut.",
                               "reason")),
      cluster_members(labelled_gauge("outrider_cluster_members",
                                     "Targets and drafts that the router knows.", "role")),
      cluster_transitions(labelled("outrider_cluster_transitions_total",
                                   "Members that joined, went, fell silent or were refused.",
                                   "event")),
      placed_again(
          counter("outrider_placed_again_total",
                  "Times that a request was placed on another target, or on the same again.")),
      preemptions(counter("vllm:num_preemptions_total", "Sequences preempted for memory.")),
      engine_steps(counter("outrider_engine_steps_total", "Batches run by the engine.")),
      prefix_cache_queries(counter("vllm:prefix_cache_queries_total",
                                   "Prompt tokens looked up in the prefix cache.")),
      prefix_cache_hits(
          counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.")),
      prefix_cache_hits_warm(
          counter("outrider_prefix_cache_hits_warm_total",
                  "Of these, tokens that memory of the host brought for a request.")),
      prefix_cache_hits_cold(counter("outrider_prefix_cache_hits_cold_total",
                                     "Of these, tokens that the KV store brought for a request.")),
      prefix_cache_hits_peer(
          counter("outrider_prefix_cache_hits_peer_total",
                  "Of these, tokens that another target brought for a request.")),
      prefix_cache_evictions(counter("outrider_prefix_cache_evictions_total",
                                     "KV blocks that the prefix cache gave up for memory.")),
      host_evictions(counter("outrider_kv_host_evictions_total",
                             "KV blocks that memory of the host gave up for others.")),
      tier_lost(counter("outrider_kv_tier_lost_total",
                        "KV blocks that were to be kept below the pool and are not: evicted before "
                        "their turn, no room for them, or too many waited.")),
      prefix_cache_pins_denied(labelled(
          "outrider_prefix_cache_pins_denied_total",
          "KV blocks that were to be pinned and were not (share: enough are) or no longer (memory: "
          "what runs needed them).",
          "reason")),
      drafts(counter("vllm:spec_decode_num_drafts_total",
                     "Steps of a sequence that verified drafted tokens.")),
      draft_tokens(
          counter("vllm:spec_decode_num_draft_tokens_total", "Drafted tokens that were verified.")),
      accepted_tokens(counter("vllm:spec_decode_num_accepted_tokens_total",
                              "Of these, those that were the answer's.")),
      accepted_at(labelled("vllm:spec_decode_num_accepted_tokens_per_pos_total",
                           "The same, by place in the draft.", "position")),
      draft_tokens_of(labelled("outrider_draft_tokens_total",
                               "Drafted tokens that were verified, by who drafted.", "source")),
      accepted_tokens_of(labelled("outrider_accepted_draft_tokens_total",
                                  "Of these, those that were the answer's.", "source")),
      hints(labelled("outrider_hints_total",
                     "Drafts that came (one names tokens of one way to go on), by what was found "
                     "of them; used: "
                     "taken in, verified or not.",
                     "outcome")) {
  requests(model_name);
}

void raise_to(prometheus::Counter& counter, double total) {
  const double missing = total - counter.Value();
  if (missing > 0) counter.Increment(missing);
}

void raise_to(prometheus::Histogram& histogram, std::span<const uint64_t> counts, double sum) {
  const prometheus::ClientMetric::Histogram known = histogram.Collect().histogram;
  std::vector<double> missing;
  uint64_t total = 0;
  for (size_t i = 0; i < known.bucket.size(); ++i) {
    total += i < counts.size() ? counts[i] : 0;
    missing.push_back(static_cast<double>(total) -
                      static_cast<double>(known.bucket[i].cumulative_count));
  }
  for (size_t i = missing.size(); i-- > 1;) missing[i] -= missing[i - 1];
  histogram.ObserveMultiple(missing, sum - known.sample_sum);
}

StoreMetrics& ServingMetrics::store() {
  if (store_) return *store_;
  store_.reset(new StoreMetrics{
      .available = gauge("outrider_kv_store_available", "1: the KV store reads and writes."),
      .blocks = gauge("outrider_kv_store_blocks", "KV blocks that the store can give back."),
      .bytes = gauge("outrider_kv_store_bytes", "Bytes of these."),
      .pinned_bytes = gauge("outrider_kv_store_pinned_bytes", "Of these, what never makes room."),
      .file_bytes = gauge("outrider_kv_store_file_bytes",
                          "Bytes of the store's payload files; pinned blocks have "
                          "files of their own, not counted."),
      .queued_bytes = gauge("outrider_kv_store_queued_bytes", "Bytes that wait to be written."),
      .loads_waiting = gauge("outrider_kv_store_loads_waiting", "Loads that wait or run."),
      .loaded_bytes = counter("outrider_kv_store_loaded_bytes_total", "Bytes read for requests."),
      .stored_bytes = counter("outrider_kv_store_stored_bytes_total", "Bytes made durable."),
      .payload_written_bytes = counter("outrider_kv_store_payload_written_bytes_total",
                                       "Bytes written to payload files, moved ones again."),
      .salvaged = counter("outrider_kv_store_salvaged_total",
                          "Damaged directories of which what could be read was kept."),
      .quarantined = counter("outrider_kv_store_quarantined_total",
                             "Damaged directories that were moved aside."),
      .refused_pins = counter("outrider_kv_store_refused_pins_total",
                              "Blocks that were to be pinned and are not: no room for it."),
      .load_duration_seconds =
          histogram("outrider_kv_store_load_duration_seconds",
                    "From the ask to the last block, of loads that brought any.",
                    Boundaries(k_store_load_seconds.begin(), k_store_load_seconds.end())),
      .loads = labelled("outrider_kv_store_loads_total",
                        "Loads by why they ended; complete: with all that was asked for.", "end"),
      .skipped = labelled("outrider_kv_store_skipped_blocks_total", "Blocks that were not stored.",
                          "reason"),
      .removed = labelled("outrider_kv_store_removed_blocks_total", "Blocks that left.", "reason"),
      .outages = labelled("outrider_kv_store_outages_total", "Outages that began.", "reason"),
      .tenant_bytes = labelled_gauge("outrider_kv_store_tenant_bytes",
                                     "Bytes of a tenant that has a quota of its own.", "tenant"),
      .tenant_quota_bytes =
          labelled_gauge("outrider_kv_store_tenant_quota_bytes", "Its quota.", "tenant"),
      .tenant_over_quota = labelled("outrider_kv_store_tenant_over_quota_blocks_total",
                                    "Its blocks that were not stored for that.", "tenant")});
  return *store_;
}

LabelledCounter ServingMetrics::labelled(const char* name, const char* help, const char* label) {
  return {prometheus::BuildCounter().Name(name).Help(help).Labels(labels_).Register(registry_),
          label};
}

LabelledGauge ServingMetrics::labelled_gauge(const char* name, const char* help,
                                             const char* label) {
  return {prometheus::BuildGauge().Name(name).Help(help).Labels(labels_).Register(registry_),
          label};
}

prometheus::Gauge& ServingMetrics::gauge(const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Labels(labels_).Register(registry_).Add({});
}

prometheus::Counter& ServingMetrics::counter(const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Labels(labels_).Register(registry_).Add(
      {});
}

prometheus::Histogram& ServingMetrics::histogram(
    const char* name, const char* help, prometheus::Histogram::BucketBoundaries boundaries) {
  return prometheus::BuildHistogram().Name(name).Help(help).Labels(labels_).Register(registry_).Add(
      {}, std::move(boundaries));
}

std::string ServingMetrics::render() const {
  std::ostringstream out;
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  if (!has_engine_) std::erase_if(families, is_of_an_engine);
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

RequestMetrics& ServingMetrics::requests(const std::string& model_name) {
  const std::lock_guard lock(requests_mutex_);
  return requests_.try_emplace(model_name, registry_, model_name).first->second;
}

prometheus::Counter& ServingMetrics::http_responses(int status) {
  return http_family_.Add({{"status", std::to_string(status)}});
}

}  // namespace outrider
