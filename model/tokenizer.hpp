#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"

namespace outrider::model {

class BpeMerger;
class GgufFile;
class PreTokenizer;

/// What a tokenizer is made of, as GGUF stores it.
struct TokenizerData {
  /// GGUF's token types.
  enum class Type : int32_t { normal = 1, unknown, control, user_defined, unused, byte };

  std::string pre;                  ///< "gpt-2", "smollm", "qwen2" or "llama-bpe"
  std::vector<std::string> tokens;  ///< normal ones in GPT-2's byte-to-character alphabet
  std::vector<Type> types;          ///< one per token
  std::vector<std::string> merges;  ///< "left right", most important first
  int32_t bos = -1;
  int32_t eos = -1;
  bool add_bos = false;
  bool add_eos = false;
  std::vector<int32_t> end_of_generation;  ///< besides eos
};

/// The first thing in which two tokenizers differ, for people; empty: they have one fingerprint.
std::string first_difference(const TokenizerData& one, const TokenizerData& other);

/// Reads `tokenizer.ggml.*`; anything but byte-level BPE is refused by name.
Result<TokenizerData> tokenizer_data_from_gguf(const GgufFile& file);

struct EncodeOptions {
  bool add_special = true;    ///< BOS and EOS where the model wants them
  bool parse_special = true;  ///< control tokens written in the text become their ids
};

/// Byte-level BPE (Sennrich et al. 2016; GPT-2's byte alphabet): text to ids and back. Total: every
/// text has ids, invalid UTF-8 counts as U+FFFD. Immutable: any thread.
class Tokenizer {
 public:
  static Result<std::shared_ptr<const Tokenizer>> create(TokenizerData data);
  static Result<std::shared_ptr<const Tokenizer>> from_gguf(const GgufFile& file);
  ~Tokenizer();

  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;

  uint32_t size() const { return static_cast<uint32_t>(types_.size()); }
  bool contains(int32_t id) const { return id >= 0 && static_cast<uint32_t>(id) < size(); }
  /// The bytes that an id stands for (may be part of a character); special ones as their name.
  std::string_view token_bytes(int32_t id) const;
  /// Bytes of all ids in a row, invalid UTF-8 replaced.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const;

  bool is_special(int32_t id) const;
  /// Sorted.
  std::span<const int32_t> end_of_generation() const { return end_of_generation_; }
  int32_t bos() const { return bos_; }
  int32_t eos() const { return eos_; }

  /// Two tokenizers of one fingerprint give the same ids for every text.
  const Digest256& fingerprint() const { return fingerprint_; }

 private:
  struct Special {
    std::string text;
    int32_t id = 0;
    bool control = false;
  };

  Tokenizer();
  Result<void> build_bytes(const TokenizerData& data);
  void build_specials(const TokenizerData& data);
  const Special* special_at(std::string_view text, size_t at, bool parse_special) const;
  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const;

  std::vector<TokenizerData::Type> types_;
  std::string bytes_;                               ///< of all tokens
  std::vector<uint32_t> offsets_;                   ///< [size + 1] into bytes_
  std::array<std::vector<Special>, 256> specials_;  ///< by first byte, longest first
  std::vector<int32_t> end_of_generation_;
  int32_t bos_ = -1;
  int32_t eos_ = -1;
  bool add_bos_ = false;
  bool add_eos_ = false;
  std::unique_ptr<BpeMerger> merger_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  Digest256 fingerprint_{};
};

}  // namespace outrider::model
