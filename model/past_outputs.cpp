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

PastOutputs::Scope& PastOutputs::scope_of(const BlockId& id, uint64_t owner) {
  const auto [at, is_new] = scopes_.try_emplace(id);
  Scope& scope = at->second;
  if (is_new) {
    scope.owner = owner;
    Owner& of = owners_[owner];
    scope.use = of.uses.insert(of.uses.end(), id);
    count(scope, true);
  }
  used(scope);
  return scope;
}

void PastOutputs::used(Scope& scope) {
  std::list<BlockId>& uses = owners_.at(scope.owner).uses;
  uses.splice(uses.end(), uses, scope.use);
}

/// What it holds now, or no more.
void PastOutputs::count(const Scope& scope, bool there) {
  size_t& of_owner = owners_.at(scope.owner).bytes;
  const size_t bytes = scope.bytes();
  of_owner = there ? of_owner + bytes : of_owner - bytes;
  bytes_ = there ? bytes_ + bytes : bytes_ - bytes;
}

void PastOutputs::erase(Scopes::iterator scope) {
  count(scope->second, false);
  const auto owner = owners_.find(scope->second.owner);
  owner->second.uses.erase(scope->second.use);
  if (owner->second.uses.empty()) owners_.erase(owner);
  scopes_.erase(scope);
}

void PastOutputs::forget_oldest_scope() {
  const auto most =
      std::ranges::max_element(owners_, {}, [](const auto& entry) { return entry.second.bytes; });
  erase(scopes_.find(most->second.uses.front()));
}

void PastOutputs::forget(std::optional<uint64_t> owner) {
  for (auto at = scopes_.begin(); at != scopes_.end();) {
    const auto scope = at++;
    if (!owner || scope->second.owner == *owner) erase(scope);
  }
}

void PastOutputs::add(const BlockId& scope, uint64_t owner, std::span<const int32_t> text) {
  const uint32_t half = scope_tokens_ / 2;
  if (half <= 1) return;
  text = text.last(std::min<size_t>(text.size(), half - 1));
  if (text.empty()) return;
  Scope& of = scope_of(scope, owner);
  count(of, false);
  if (of.younger.size() + text.size() + 1 > half) of.older = std::exchange(of.younger, {});
  of.younger.append(text);
  of.younger.separate();
  count(of, true);
  while (bytes_ > bytes_max_) forget_oldest_scope();
}

bool PastOutputs::draft(const BlockId& scope, std::span<const int32_t> end, uint32_t depth,
                        std::vector<HintBranch>& out) {
  const auto found = scopes_.find(scope);
  if (found == scopes_.end()) return false;
  Scope& of = found->second;
  used(of);
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
