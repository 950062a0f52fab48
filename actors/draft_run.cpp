#include "actors/draft_run.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"

namespace outrider::actors {
namespace {

/// A token that comes true with a lower probability is not worth computing before the next commit.
constexpr float k_survival_min = 0.1f;

uint8_t confidence_of(const TokenOut& token) {
  const float probability = token.logprob ? std::exp(token.logprob->logprob) : 0.5f;
  return static_cast<uint8_t>(std::clamp(probability, 0.0f, 1.0f) * 255);
}

/// As the target samples it, without an end.
GenerationRequest drafting(const schema::DraftOpen& open) {
  GenerationRequest request = schema::from_wire(open.request);
  request.sampling.seed += open.key.choice;
  request.stop = {.max_tokens = std::numeric_limits<uint32_t>::max(), .ignore_eos = true};
  request.choices = 1;
  request.logprobs = 0;
  request.prompt_logprobs = -1;
  request.deadline_ms = 0;
  request.kv = {};
  request.speculation.enabled = false;
  return request;
}

}  // namespace

DraftRun::DraftRun(const schema::DraftOpen& open, RequestKey engine_key, uint32_t context_tokens)
    : key_(open.key),
      engine_key_(engine_key),
      request_(drafting(open)),
      prompt_tokens_(open.prompt_tokens),
      context_tokens_(context_tokens),
      hash_(model::k_empty_text) {}

DraftRun::Taken DraftRun::take(const schema::DraftCommit& commit) {
  if (commit.base_length + commit.tokens.size() >= text_.size()) {
    depth_ = commit.depth;
    target_step_ns_ = commit.step_ns;
  }
  if (commit.base_length > text_.size()) return Taken::gap;
  const size_t known = std::min(text_.size() - commit.base_length, commit.tokens.size());
  const auto news = commit.tokens.begin() + static_cast<long>(known);
  if (!std::equal(commit.tokens.begin(), news, text_.begin() + commit.base_length)) {
    return Taken::contradiction;
  }
  for (auto token = news; token != commit.tokens.end(); ++token) {
    text_.push_back(*token);
    hash_ = model::text_hash(hash_, *token);
    if (!submitted_) continue;
    if (!ahead_.empty() && ahead_.front().token == *token) {
      ahead_.pop_front();
    } else {
      ahead_.clear();
      diverged_ = true;
    }
  }
  return Taken::yes;
}

bool DraftRun::submit(Stepper& engine) {
  GenerationRequest request = std::move(request_);
  const auto output = text_.begin() + prompt_tokens_;
  request.prompt.assign(text_.begin(), output);
  request.committed.assign(output, text_.end());
  submitted_ = true;
  constexpr TimePoint k_unread{};  // it has no deadline, and nobody asks for its times
  return engine.submit(engine_key_, std::move(request), k_unread).ok();
}

bool DraftRun::steer(Stepper& engine, Duration own_step) {
  if (text_.size() >= context_tokens_ || prompt_tokens_ >= context_tokens_) return false;
  if (text_.size() < prompt_tokens_) return true;
  if (!submitted_) return depth_ == 0 || submit(engine);
  if (diverged_ && depth_ > 0) {
    if (!engine.redirect(engine_key_, std::span(text_).subspan(prompt_tokens_))) return false;
    diverged_ = false;
  }
  const bool rests = depth_ == 0 || is_far_enough(own_step);
  if (rests != parked_) engine.set_parked(engine_key_, rests);
  parked_ = rests;
  return true;
}

/// What one step of the target verifies, the token that it draws behind that, and what can be
/// drafted during the step.
uint32_t DraftRun::lead_max(Duration own_step) const {
  const auto own_ns = static_cast<uint64_t>(std::max(own_step, Duration(1)).count());
  const uint64_t meanwhile = std::clamp<uint64_t>(target_step_ns_ / own_ns, 1, depth_);
  return static_cast<uint32_t>(std::min<uint64_t>(depth_ + 1 + meanwhile, model::k_hint_depth_max));
}

bool DraftRun::is_far_enough(Duration own_step) const {
  if (ahead_.size() >= lead_max(own_step)) return true;
  float survival = 1;
  for (const Expected& token : ahead_) survival *= static_cast<float>(token.confidence) / 255;
  return survival < k_survival_min;
}

void DraftRun::advance(const model::ChoiceUpdate& update) {
  if (update.tokens.empty()) return;
  OUTRIDER_CHECK(!diverged_ && prompt_tokens_ + update.first_index == text_.size() + ahead_.size(),
                 update.first_index, text_.size(), ahead_.size());
  for (const TokenOut& token : update.tokens) ahead_.push_back({token.id, confidence_of(token)});
}

schema::DraftHint DraftRun::hint() const {
  schema::DraftHint hint{key_, length(), hash_, {}};
  for (const Expected& token : ahead_) {
    const auto parent = static_cast<int32_t>(hint.branches.size()) - 1;
    hint.branches.push_back({parent, token.token, token.confidence});
  }
  return hint;
}

void DraftRun::stop(Stepper& engine) const {
  if (submitted_) engine.cancel(engine_key_);
}

}  // namespace outrider::actors
