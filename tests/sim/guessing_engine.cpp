#include "tests/sim/guessing_engine.hpp"

#include <cmath>
#include <utility>

#include "model/hint_trie.hpp"

namespace outrider::sim {

Result<void> GuessingEngine::submit(RequestKey key, GenerationRequest request, TimePoint) {
  Sequence sequence;
  sequence.text = static_cast<uint32_t>(request.sampling.seed);
  sequence.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  set_output(sequence, request.committed);
  sequence.prompt_rows = sequence.length();
  sequences_.insert_or_assign(key, std::move(sequence));
  return {};
}

void GuessingEngine::set_output(Sequence& sequence, std::span<const int32_t> output) const {
  sequence.output.assign(output.begin(), output.end());
  sequence.right = 0;
  for (const int32_t token : output) {
    if (texts_.truth(sequence.text, sequence.prompt_tokens + sequence.right) != token) break;
    ++sequence.right;
  }
}

bool GuessingEngine::redirect(RequestKey key, std::span<const int32_t> output) {
  const auto at = sequences_.find(key);
  if (at == sequences_.end()) return false;
  set_output(at->second, output);
  return true;
}

bool GuessingEngine::fork(RequestKey key, RequestKey fresh, std::span<const int32_t> output) {
  const auto at = sequences_.find(key);
  if (at == sequences_.end()) return false;
  Sequence sequence = at->second;
  sequence.parked = false;
  set_output(sequence, output);
  sequences_.insert_or_assign(fresh, std::move(sequence));
  return true;
}

uint32_t GuessingEngine::rows() const {
  uint32_t rows = 0;
  for (const auto& [key, sequence] : sequences_) {
    if (!sequence.parked) rows += std::max(sequence.prompt_rows, 1u);
  }
  return rows;
}

void GuessingEngine::guess(Sequence& sequence, model::ChoiceUpdate& update) const {
  const bool is_right = sequence.right == sequence.output.size();
  const auto guesses =
      is_right ? texts_.guesses(sequence.text, sequence.length())
               : texts_.guesses_elsewhere(model::text_hash(sequence.text, sequence.output));
  TokenLogprob logprob;
  for (uint32_t rank = 0; rank < k_guesses; ++rank) {
    const auto claim = static_cast<float>(std::log(texts_.claim(rank)));
    if (rank == 0) logprob.logprob = claim;
    logprob.top.emplace_back(guesses[rank], claim);
  }
  update.first_index = static_cast<uint32_t>(sequence.output.size());
  update.tokens.push_back({guesses[0], std::move(logprob)});
  if (is_right && texts_.truth(sequence.text, sequence.length()) == guesses[0]) ++sequence.right;
  sequence.output.push_back(guesses[0]);
}

std::span<const model::ChoiceUpdate> GuessingEngine::step() {
  updates_.clear();
  for (auto& [key, sequence] : sequences_) {
    if (sequence.parked) continue;
    sequence.prompt_rows = 0;
    model::ChoiceUpdate& update = updates_.emplace_back();
    update.key = key;
    guess(sequence, update);
  }
  return updates_;
}

}  // namespace outrider::sim
