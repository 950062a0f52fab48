#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "model/tokenizer.hpp"

namespace outrider::model {

/// Byte-pair merging of one word (Sennrich, Haddow, Birch 2016), in O(n log n). Immutable.
class BpeMerger {
 public:
  /// Fails if a merge names a token that the vocabulary does not have. `whole_words_first`: a word
  /// that is a token is never taken apart.
  static Result<std::unique_ptr<BpeMerger>> create(const TokenizerData& data,
                                                   bool whole_words_first);

  /// Appends the ids of one word.
  void append(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    uint32_t rank = 0;
    int32_t id = 0;
  };
  struct Symbol {
    int32_t id = 0;
    int32_t previous = -1;  // index of a neighbour, -1 at the end
    int32_t next = -1;
  };
  struct Candidate {
    uint32_t rank = 0;
    int32_t left = 0;  // index of the left symbol
    int32_t left_id = 0;
    int32_t right_id = 0;
    int32_t merged_id = 0;
  };

  static uint64_t pair_key(int32_t left, int32_t right) {
    return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  }
  void push_candidate(const std::vector<Symbol>& symbols, int32_t left,
                      std::vector<Candidate>& heap) const;
  std::vector<Symbol> byte_symbols(std::string_view word) const;

  std::array<int32_t, 256> byte_ids_{};  // -1: the vocabulary lacks the byte
  std::unordered_map<uint64_t, Merge> merges_;
  std::unordered_map<std::string, int32_t> words_;  // by bytes; empty unless whole words come first
};

/// GPT-2's alphabet: the character (as UTF-8) that stands for a byte.
const std::array<std::string, 256>& byte_alphabet();
/// The bytes behind a token written in that alphabet; false if it has other characters.
bool alphabet_to_bytes(std::string_view token, std::string& bytes);

}  // namespace outrider::model
