#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/block_id.hpp"
#include "model/ngram_index.hpp"

namespace outrider::model {

/// What was answered of late, for drafts of answers like it. Scopes (a tenant's salt, as names of
/// KV blocks keep them apart) see nothing of each other. Bounded: each scope keeps the last texts,
/// and when all hold too much, of the owner who holds most the scope goes that was used least
/// recently. Not thread-safe.
class PastOutputs {
 public:
  /// Tokens of one scope (half of them at least are kept), and bytes of all.
  PastOutputs(uint32_t scope_tokens, size_t bytes_max)
      : scope_tokens_(scope_tokens), bytes_max_(bytes_max) {}

  void add(const BlockId& scope, uint64_t owner, std::span<const int32_t> text);
  /// All that an owner has; without one, of all.
  void forget(std::optional<uint64_t> owner);
  /// How texts of the scope went on that ended as this one does: up to `depth` tokens, as a chain
  /// behind `out`. Whether there were any.
  bool draft(const BlockId& scope, std::span<const int32_t> end, uint32_t depth,
             std::vector<HintBranch>& out);
  /// Memory that is taken.
  size_t bytes() const { return bytes_; }

 private:
  struct Owner {
    size_t bytes = 0;
    std::list<BlockId> uses;  ///< of its scopes, least recent first
  };
  /// The younger half takes new texts; when it is full, the older one goes.
  struct Scope {
    NgramIndex younger;
    NgramIndex older;
    uint64_t owner = 0;
    std::list<BlockId>::iterator use;

    size_t bytes() const;
  };
  using Scopes = std::unordered_map<BlockId, Scope, BlockIdHash>;
  Scope& scope_of(const BlockId& id, uint64_t owner);
  void used(Scope& scope);
  void count(const Scope& scope, bool there);
  void erase(Scopes::iterator scope);
  void forget_oldest_scope();

  uint32_t scope_tokens_;
  size_t bytes_max_;
  size_t bytes_ = 0;
  Scopes scopes_;
  std::unordered_map<uint64_t, Owner> owners_;  ///< that have scopes
};

}  // namespace outrider::model
