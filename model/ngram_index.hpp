#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/hint_trie.hpp"

/// A draft that costs nothing: how texts went on the last time they ended as this one does (prompt
/// lookup, Saxena 2023), of one request or of many.
namespace outrider::model {

/// Texts, and where each of their last 8, 4 and 2 tokens stood of late. 52 to 104 bytes a token.
/// What one place of the table had is forgotten when another needs it: a draft less, no wrong one.
/// Not thread-safe.
class NgramIndex {
 public:
  /// The text goes on.
  void append(int32_t token);
  void append(std::span<const int32_t> tokens);
  /// Another text begins: no draft goes from one into the other.
  void separate();
  /// Tokens and separations.
  size_t size() const { return tokens_.size(); }
  /// Memory that they take.
  size_t bytes() const {
    return tokens_.capacity() * sizeof(int32_t) + table_.capacity() * sizeof(uint32_t);
  }

  /// An earlier place where `length` tokens (2 to k_match_max) stood as at the end of a text, and
  /// what followed begins at `next`.
  struct Match {
    uint32_t next = 0;
    uint32_t length = 0;

    friend bool operator==(const Match&, const Match&) = default;
  };
  static constexpr uint32_t k_match_max = 32;
  /// For a text that ends with `end`, which may be the last one here: the latest place of its last
  /// 8 tokens, else 4, else 2.
  std::optional<Match> find(std::span<const int32_t> end) const;
  /// Up to `depth` tokens from there on, as a chain. What runs into the end of the last text goes
  /// on with itself. The longer the match, the higher the confidence.
  void draft(const Match& match, uint32_t depth, std::vector<HintBranch>& out) const;

  std::span<const int32_t> tokens() const { return tokens_; }

 private:
  size_t slot(std::span<const int32_t> ngram) const;
  void index_before(uint32_t next);
  void grow();

  std::vector<int32_t> tokens_;  ///< -1: a text ends.
  std::vector<uint32_t> table_;  ///< Where what followed begins; 0: nothing. A power of two long.
};

}  // namespace outrider::model
