#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace outrider::model {

/// Normalises text and cuts it into the words that BPE never merges across. Immutable: any thread.
class PreTokenizer {
 public:
  /// "gpt-2" (also "default"), "smollm", "qwen2", "llama-bpe"; others are refused by name.
  static Result<std::unique_ptr<PreTokenizer>> create(std::string_view name);
  ~PreTokenizer();

  /// A word of the vocabulary is taken whole, without merging (llama-bpe).
  bool whole_words_first() const;
  /// Calls `on_word` for each word of valid UTF-8 `text`, in order; nothing is left out.
  void split(std::string_view text, const std::function<void(std::string_view)>& on_word) const;

 private:
  PreTokenizer();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace outrider::model
