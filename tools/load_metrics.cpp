#include "tools/load_metrics.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "base/check.hpp"
#include "tools/counted.hpp"

namespace outrider::tools {

std::optional<double> RequestRecord::tpot_s() const {
  if (output_tokens < 2) return std::nullopt;
  return (e2e_s() - ttft_s()) / (output_tokens - 1);
}

bool Slo::kept_by(const RequestRecord& record) const {
  const auto tpot = record.tpot_s();
  return (!ttft_ms || record.ttft_s() * 1e3 <= *ttft_ms) &&
         (!tpot_ms || !tpot || *tpot * 1e3 <= *tpot_ms) &&
         (!e2e_ms || record.e2e_s() * 1e3 <= *e2e_ms);
}

double percentile(std::span<const double> ascending, double share) {
  OUTRIDER_CHECK(!ascending.empty() && share >= 0 && share <= 1, share);
  const double at = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, ascending.size() - 1);
  return std::lerp(ascending[below], ascending[above], at - static_cast<double>(below));
}

Distribution Distribution::of(std::vector<double> samples) {
  Distribution out;
  if (samples.empty()) return out;
  std::sort(samples.begin(), samples.end());
  out.count = samples.size();
  out.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(out.count);
  out.p50 = percentile(samples, 0.50);
  out.p90 = percentile(samples, 0.90);
  out.p95 = percentile(samples, 0.95);
  out.p99 = percentile(samples, 0.99);
  out.max = samples.back();
  return out;
}

void TokenCounts::add(uint32_t tokens) {
  least = requests == 0 ? tokens : std::min(least, tokens);
  most = std::max(most, tokens);
  sum += tokens;
  ++requests;
}

LoadSummary summarise(std::span<const RequestRecord> records, const Slo& slo) {
  LoadSummary out;
  if (records.empty()) return out;
  std::vector<double> ttft, tpot, itl, e2e, late;
  double first = records.front().sent_s;
  double last = records.front().ended_s;
  for (const RequestRecord& record : records) {
    first = std::min(first, record.sent_s);
    last = std::max(last, record.ended_s);
    late.push_back(record.late_s * 1e3);
    if (!record.ok()) {
      ++out.errors[record.error];
      continue;
    }
    ++out.completed;
    if (record.prompt_tokens != 0) out.prompts.add(record.prompt_tokens);
    out.cached_tokens += record.cached_tokens;
    out.answers.add(record.output_tokens);
    out.draft_tokens += record.draft_tokens;
    out.accepted_tokens += record.accepted_tokens;
    out.good += slo.kept_by(record) ? 1 : 0;
    ttft.push_back(record.ttft_s() * 1e3);
    e2e.push_back(record.e2e_s() * 1e3);
    if (const auto value = record.tpot_s()) tpot.push_back(*value * 1e3);
    for (size_t i = 1; i < record.outputs_s.size(); ++i) {
      itl.push_back((record.outputs_s[i] - record.outputs_s[i - 1]) * 1e3);
    }
  }
  out.duration_s = last - first;
  const auto per_second = [&](uint64_t count) {
    return out.duration_s > 0 ? static_cast<double>(count) / out.duration_s : 0;
  };
  out.requests_per_s = per_second(out.completed);
  out.output_tokens_per_s = per_second(out.answers.sum);
  out.goodput_per_s = per_second(out.good);
  out.ttft_ms = Distribution::of(std::move(ttft));
  out.tpot_ms = Distribution::of(std::move(tpot));
  out.itl_ms = Distribution::of(std::move(itl));
  out.e2e_ms = Distribution::of(std::move(e2e));
  out.late_ms = Distribution::of(std::move(late));
  return out;
}

std::string mismatch_text(const LoadSummary& summary, const AskedTokens& asked) {
  const TokenCounts& prompts = summary.prompts;
  const TokenCounts& answers = summary.answers;
  std::string out;
  const auto add = [&out](const std::string& text) { out += (out.empty() ? "" : "; ") + text; };
  const auto of = [](double mean, uint32_t all) {
    char text[64];
    std::snprintf(text, sizeof(text), "%.1f of %u", mean, all);
    return std::string(text);
  };
  if (answers.requests == 0) return out;
  if (answers.least != asked.answer || answers.most != asked.answer) {
    add("answers had " + of(answers.mean(), asked.answer) + " tokens in the mean");
  }
  if (prompts.requests == 0) {
    add("the server counted no prompt tokens");
  } else if (prompts.least < asked.prompt || prompts.most > asked.prompt + 1) {
    add("the server counted " + of(prompts.mean(), asked.prompt) + " prompt tokens");
  }
  return out;
}

std::string shortfall_text(const LoadSummary& summary, uint32_t answer_tokens) {
  uint64_t failed = 0;
  for (const auto& [kind, count] : summary.errors) failed += count;
  if (failed != 0) {
    return std::to_string(failed) + " of " + counted(failed + summary.completed, "request") +
           " failed";
  }
  if (summary.answers.least >= answer_tokens) return {};
  return "an answer had " + std::to_string(summary.answers.least) + " of " +
         counted(answer_tokens, "token");
}

}  // namespace outrider::tools
