#include "model/past_outputs.hpp"

#include <algorithm>
#include <utility>

namespace outrider::model {
namespace {

/// What a scope without texts takes: itself, its id in the table and in the list, their nodes.
constexpr size_t k_scope_bytes = 384;

}  // namespace

size_t PastOutputs::Scope::bytes() const {
  return k_scope_bytes + younger.bytes() + older.bytes();
}

PastOutputs::Scope& PastOutputs::scope_of(const BlockId& id) {
  const auto [at, is_new] = scopes_.try_emplace(id);
  if (is_new) {
    at->second.use = uses_.insert(uses_.end(), id);
    bytes_ += at->second.bytes();
  }
  uses_.splice(uses_.end(), uses_, at->second.use);
  return at->second;
}

void PastOutputs::forget_oldest_scope() {
  const auto at = scopes_.find(uses_.front());
  bytes_ -= at->second.bytes();
  scopes_.erase(at);
  uses_.pop_front();
}

void PastOutputs::add(const BlockId& scope, std::span<const int32_t> text) {
  const uint32_t half = scope_tokens_ / 2;
  if (half <= 1) return;
  text = text.last(std::min<size_t>(text.size(), half - 1));
  if (text.empty()) return;
  Scope& of = scope_of(scope);
  bytes_ -= of.bytes();
  if (of.younger.size() + text.size() + 1 > half) of.older = std::exchange(of.younger, {});
  of.younger.append(text);
  of.younger.separate();
  bytes_ += of.bytes();
  while (bytes_ > bytes_max_) forget_oldest_scope();
}

bool PastOutputs::draft(const BlockId& scope, std::span<const int32_t> end, uint32_t depth,
                        std::vector<HintBranch>& out) {
  if (!scopes_.contains(scope)) return false;
  Scope& of = scope_of(scope);
  for (const NgramIndex* index : {&of.younger, &of.older}) {
    const auto match = index->find(end);
    if (!match) continue;
    const size_t before = out.size();
    index->draft(*match, depth, out);
    return out.size() > before;
  }
  return false;
}

}  // namespace outrider::model
