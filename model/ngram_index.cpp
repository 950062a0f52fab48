#include "model/ngram_index.hpp"

#include <algorithm>
#include <array>

namespace outrider::model {
namespace {

constexpr int32_t k_separator = -1;
constexpr std::array<uint32_t, 3> k_orders = {8, 4, 2};
constexpr size_t k_slots_min = 64;
/// Slots a token at least: at most a quarter of them is in use.
constexpr size_t k_slots_per_token = 12;

/// 255 times the share of tokens that followed as before, by the length of the match.
uint8_t confidence(uint32_t length) {
  if (length < 3) return 90;
  if (length < 5) return 115;
  if (length < 8) return 165;
  return length < 16 ? 205 : 235;
}

}  // namespace

size_t NgramIndex::slot(std::span<const int32_t> ngram) const {
  return text_hash(ngram.size(), ngram) & (table_.size() - 1);
}

void NgramIndex::index_before(uint32_t next) {
  for (const uint32_t order : k_orders) {
    if (next < order) continue;
    const std::span<const int32_t> ngram(tokens_.data() + next - order, order);
    if (std::find(ngram.begin(), ngram.end(), k_separator) == ngram.end()) {
      table_[slot(ngram)] = next;
    }
  }
}

void NgramIndex::grow() {
  table_.assign(std::max(k_slots_min, 2 * table_.size()), 0);
  for (uint32_t next = 1; next < tokens_.size(); ++next) {
    if (tokens_[next] != k_separator) index_before(next);
  }
}

void NgramIndex::append(int32_t token) {
  if (k_slots_per_token * tokens_.size() >= table_.size()) grow();
  tokens_.push_back(token);
  // What a text ends with now is no earlier place: it becomes one when something follows.
  if (token != k_separator) index_before(static_cast<uint32_t>(tokens_.size()) - 1);
}

void NgramIndex::append(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) append(token);
}

void NgramIndex::separate() {
  append(k_separator);
}

std::optional<NgramIndex::Match> NgramIndex::find(std::span<const int32_t> end) const {
  if (table_.empty()) return std::nullopt;
  for (const uint32_t order : k_orders) {
    if (end.size() < order) continue;
    const uint32_t next = table_[slot(end.last(order))];
    uint32_t length = 0;
    const auto longest = static_cast<uint32_t>(std::min<size_t>({next, end.size(), k_match_max}));
    while (length < longest && tokens_[next - 1 - length] == end[end.size() - 1 - length]) ++length;
    if (length >= order) return Match{next, length};
  }
  return std::nullopt;
}

void NgramIndex::draft(const Match& match, uint32_t depth, std::vector<HintBranch>& out) const {
  const size_t first = out.size();
  for (uint32_t i = 0; i < depth; ++i) {
    const size_t at = size_t{match.next} + i;
    const int32_t token =
        at < tokens_.size() ? tokens_[at] : out[first + at - tokens_.size()].token;
    if (token == k_separator) return;
    out.push_back(
        {i == 0 ? -1 : static_cast<int32_t>(first + i) - 1, token, confidence(match.length + i)});
  }
}

}  // namespace outrider::model
