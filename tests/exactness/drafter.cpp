#include "tests/exactness/drafter.hpp"

#include <algorithm>
#include <memory>

namespace outrider::exactness {
namespace {

uint64_t hash_of(const Drafter::Text& text, uint32_t said) {
  return model::text_hash(model::text_hash(model::k_empty_text, text.prompt),
                          text.answer.first(said));
}

/// Requests that are answered exactly ask for no such thing.
std::shared_ptr<const model::DraftDistribution> certain(int32_t token) {
  return std::make_shared<model::DraftDistribution>(
      model::DraftDistribution{{{token, uint16_t{model::k_draft_weights}}}});
}

}  // namespace

void Drafter::draft(model::Engine& engine, RequestKey key, uint32_t choice, const Text& text) {
  // What was told of another request, or of this one at another time.
  if (random_.chance(0.1f)) return give(engine, key, choice);
  const auto end = static_cast<uint32_t>(text.answer.size());
  uint32_t from = text.said;
  if (random_.chance(0.2f)) from -= random_.below(from + 1);                      // late
  if (random_.chance(0.2f)) from += random_.below(std::min(6u, end - from) + 1);  // ahead
  base_length_ = static_cast<uint32_t>(text.prompt.size()) + from;
  base_hash_ = hash_of(text, from);
  branches_.clear();
  add_answer(text, from);
  if (random_.chance(0.1f)) base_hash_ ^= 1 + random_.below(8);
  if (random_.chance(0.1f)) base_length_ += random_.below(3);
  if (random_.chance(0.05f) && !branches_.empty()) {
    model::HintBranch& broken = branches_[random_.below(static_cast<uint32_t>(branches_.size()))];
    broken.parent = static_cast<int32_t>(random_.below(300)) - 2;
    if (random_.chance(0.5f)) broken.token = random_.chance(0.5f) ? -7 : INT32_MAX;
  }
  give(engine, key, choice);
}

/// The answer from there on, with lies, and lies beside it.
void Drafter::add_answer(const Text& text, uint32_t from) {
  const uint32_t length = random_.chance(0.05f) ? 300 : 1 + random_.below(12);
  const float lies = random_.chance(0.5f) ? 0.0f : 0.5f * random_.uniform();
  int32_t parent = -1;
  for (uint32_t i = 0; i < length; ++i) {
    const bool is_known = from + i < text.answer.size();
    const auto lie = static_cast<int32_t>(random_.below(vocabulary_));
    if (random_.chance(0.2f)) {
      branches_.push_back({parent, lie, static_cast<uint8_t>(random_.below(256))});
    }
    branches_.push_back({parent, is_known && !random_.chance(lies) ? text.answer[from + i] : lie,
                         static_cast<uint8_t>(random_.below(256))});
    if (random_.chance(0.1f)) branches_.back().drawn_from = certain(branches_.back().token);
    parent = static_cast<int32_t>(branches_.size()) - 1;
  }
}

void Drafter::give(model::Engine& engine, RequestKey key, uint32_t choice) {
  engine.hint(key, choice,
              {.base_length = base_length_,
               .base_hash = base_hash_,
               .branches = branches_,
               .source = static_cast<HintSource>(random_.below(k_hint_sources))});
}

}  // namespace outrider::exactness
