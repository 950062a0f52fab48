#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace outrider::tools {

/// What the client saw of one request. Times are seconds from one start.
struct RequestRecord {
  double sent_s = 0;              ///< the request began to be written
  double ended_s = 0;             ///< nothing more came
  double last_s = 0;              ///< the last event of the answer proper: text or finish reason
  std::vector<double> outputs_s;  ///< each event that brought text
  uint32_t prompt_tokens = 0;     ///< as the server counts; 0: it does not
  uint32_t cached_tokens = 0;     ///< of the prompt, as the server says
  uint32_t output_tokens = 0;     ///< as the server counts, else events with text
  uint32_t draft_tokens = 0;      ///< drafted and verified, as the server says
  uint32_t accepted_tokens = 0;   ///< of these
  double late_s = 0;              ///< sent after the time that the schedule said
  std::string error;              ///< kind; empty: a whole answer

  bool ok() const { return error.empty(); }
  /// To the first non-empty output.
  double ttft_s() const { return outputs_s.front() - sent_s; }
  double e2e_s() const { return last_s - sent_s; }
  /// Per output token after the first; none for an answer of one token.
  std::optional<double> tpot_s() const;
};

/// What a request must keep to count as good. An absent bound is always kept.
struct Slo {
  std::optional<double> ttft_ms;
  std::optional<double> tpot_ms;
  std::optional<double> e2e_ms;

  bool kept_by(const RequestRecord& record) const;
};

/// Of the pooled samples of a run, never of other distributions. Milliseconds.
struct Distribution {
  uint64_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p95 = 0;
  double p99 = 0;
  double max = 0;

  static Distribution of(std::vector<double> samples);
};

/// Value at `share` (0 … 1) of ascending samples, linear between neighbours (numpy's default).
double percentile(std::span<const double> ascending, double share);

/// Tokens of some requests, each counted apart.
struct TokenCounts {
  uint64_t requests = 0;
  uint64_t sum = 0;
  uint32_t least = 0;
  uint32_t most = 0;

  void add(uint32_t tokens);
  double mean() const { return static_cast<double>(sum) / static_cast<double>(requests); }
};

/// One run of a load. Rates are per second from the first request sent to the last one ended.
struct LoadSummary {
  uint64_t completed = 0;
  std::map<std::string, uint64_t> errors;  ///< requests by kind
  double duration_s = 0;
  double requests_per_s = 0;       ///< completed
  double output_tokens_per_s = 0;  ///< of completed requests
  double goodput_per_s = 0;        ///< completed requests that kept the objectives
  uint64_t good = 0;
  TokenCounts prompts;         ///< of completed requests whose prompt the server counted
  uint64_t cached_tokens = 0;  ///< of these
  TokenCounts answers;         ///< of completed requests
  uint64_t draft_tokens = 0;   ///< verified for these
  uint64_t accepted_tokens = 0;
  Distribution ttft_ms;  ///< first non-empty output - send
  Distribution tpot_ms;  ///< (e2e - ttft) / (output tokens - 1)
  Distribution itl_ms;   ///< gaps between events with text, of completed requests
  Distribution e2e_ms;   ///< last event - send
  Distribution late_ms;  ///< send - schedule, of all requests
};

LoadSummary summarise(std::span<const RequestRecord> records, const Slo& slo);

/// Tokens of each request.
struct AskedTokens {
  uint32_t prompt = 0;
  uint32_t answer = 0;
};

/// What completed requests had other than was asked, for people; empty: nothing. A server may count
/// one token more before a prompt (BOS).
std::string mismatch_text(const LoadSummary& summary, const AskedTokens& asked);

/// Why a load is no success, for people; empty: each request got an answer, none of fewer tokens.
std::string shortfall_text(const LoadSummary& summary, uint32_t answer_tokens);

}  // namespace outrider::tools
