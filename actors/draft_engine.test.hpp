#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "actors/engine_port.hpp"
#include "model/hint_trie.hpp"

namespace outrider::actors {

/// What any model says next in the tests of drafts: a pure function of the text.
inline int32_t said_next(std::span<const int32_t> text) {
  return static_cast<int32_t>(model::text_hash(model::k_empty_text, text) % 1000);
}

/// A draft model without a model: one token for each text and step, the right one or, at each
/// `wrong_each`th position, another. Single-threaded.
class ScriptedDraft final : public Stepper {
 public:
  explicit ScriptedDraft(uint32_t context_tokens = 256) : context_tokens_(context_tokens) {}

  Result<void> submit(RequestKey key, GenerationRequest request, TimePoint) override {
    if (request.prompt.empty() || request.prompt.size() >= context_tokens_) {
      return fail(ErrorCode::invalid_argument, "no such prompt", "prompt");
    }
    Text text{std::move(request), {}, false, false};
    text.output = text.request.committed;
    EXPECT_TRUE(texts.emplace(key, std::move(text)).second);
    return {};
  }
  void cancel(RequestKey key) override {
    if (const auto at = texts.find(key); at != texts.end()) at->second.cancelled = true;
  }
  void set_parked(RequestKey key, bool parked) override { texts.at(key).parked = parked; }
  bool redirect(RequestKey key, std::span<const int32_t> output) override {
    const auto at = texts.find(key);
    if (at == texts.end()) return false;
    if (at->second.request.prompt.size() + output.size() >= context_tokens_) return false;
    at->second.output.assign(output.begin(), output.end());
    ++redirects;
    return true;
  }
  bool fork(RequestKey key, RequestKey fresh, std::span<const int32_t> output) override {
    const auto at = texts.find(key);
    if (at == texts.end() || texts.size() >= sequences_max) return false;
    Text text = at->second;
    text.parked = text.cancelled = false;
    text.output.assign(output.begin(), output.end());
    EXPECT_TRUE(texts.emplace(fresh, std::move(text)).second);
    ++forks;
    return true;
  }
  void hint(RequestKey, uint32_t, const model::Hint&) override { FAIL() << "a draft has no draft"; }
  bool idle() const override { return texts.empty(); }
  void on_arrival(std::function<void()>) override {}

  std::span<const model::ChoiceUpdate> step() override {
    updates_.clear();
    for (auto at = texts.begin(); at != texts.end();) {
      at = advance(at->first, at->second) ? texts.erase(at) : std::next(at);
    }
    return updates_;
  }
  model::EngineStats stats() const override {
    model::EngineStats stats;
    for (const auto& [key, text] : texts) ++(text.parked ? stats.parked : stats.running);
    stats.rows = rows_;
    return stats;
  }
  model::CacheReset forget_cached(const std::optional<std::string>&) override {
    return {++resets, 0};
  }
  void check_conservation() const override {}

  /// What it says to have drawn a token from.
  static std::vector<std::pair<int32_t, uint16_t>> drawn_from(int32_t token) {
    return {{token, 5}, {token + 1, model::k_draft_weights - 5}};
  }

  struct Text {
    GenerationRequest request;
    std::vector<int32_t> output;
    bool parked = false;
    bool cancelled = false;
  };
  std::map<RequestKey, Text> texts;
  uint32_t wrong_each = 0;  ///< Then its second guess is right.
  float confidence = 0.99f;
  float second = 0;  ///< Of the second guess; 0: there is none.
  size_t sequences_max = 1000;
  std::string fails_with;  ///< Nothing: it does not.
  uint32_t redirects = 0;
  uint32_t forks = 0;
  uint32_t resets = 0;

 private:
  /// True when the text has ended.
  bool advance(RequestKey key, Text& text) {
    if (text.parked && !text.cancelled) return false;
    model::ChoiceUpdate& update = updates_.emplace_back();
    update.key = key;
    update.first_index = static_cast<uint32_t>(text.output.size());
    if (text.cancelled) {
      update.finish = Finish{FinishReason::cancelled, -1, -1};
      return true;
    }
    ++rows_;
    if (!fails_with.empty()) {
      update.error = fails_with;
      update.finish = Finish{FinishReason::failed, -1, -1};
      return true;
    }
    std::vector<int32_t> whole = text.request.prompt;
    whole.insert(whole.end(), text.output.begin(), text.output.end());
    int32_t token = said_next(whole);
    int32_t other = token ^ 1;
    if (wrong_each > 0 && whole.size() % wrong_each == 0) std::swap(token, other);
    text.output.push_back(token);
    TokenLogprob logprob{std::log(confidence), 1, {{token, std::log(confidence)}}};
    if (second > 0) logprob.top.emplace_back(other, std::log(second));
    update.tokens.push_back({token, std::move(logprob)});
    if (text.request.draft == DraftKind::drawn) {
      update.tokens.back().logprob.reset();
      update.drawn_from.emplace_back();
      for (const auto& [id, weight] : drawn_from(token)) {
        update.drawn_from.back().entries.push_back({id, weight});
      }
    }
    if (whole.size() + 1 < context_tokens_) return false;
    update.finish = Finish{FinishReason::length, -1, -1};
    return true;
  }

  uint32_t context_tokens_;
  uint64_t rows_ = 0;
  std::vector<model::ChoiceUpdate> updates_;
};

/// What a target would say: its own next tokens behind `text`.
inline std::vector<int32_t> truth_behind(std::vector<int32_t> text, uint32_t count) {
  std::vector<int32_t> out;
  for (uint32_t i = 0; i < count; ++i) {
    out.push_back(said_next(text));
    text.push_back(out.back());
  }
  return out;
}

}  // namespace outrider::actors
