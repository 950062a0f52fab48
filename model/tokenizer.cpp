#include "model/tokenizer.hpp"

#include <algorithm>

#include "base/limits.hpp"
#include "base/utf8.hpp"
#include "model/bpe_merger.hpp"
#include "model/pre_tokenizer.hpp"

namespace outrider::model {
namespace {

using Type = TokenizerData::Type;

Result<void> check(const TokenizerData& data) {
  const auto corrupt = [](std::string message, std::string key) {
    return fail(ErrorCode::corrupt, key + ": " + std::move(message), key);
  };
  if (data.tokens.empty() || data.tokens.size() > limits::vocabulary_max) {
    return corrupt(std::to_string(data.tokens.size()) + " tokens; 1 to " +
                       std::to_string(limits::vocabulary_max) + " are supported",
                   "tokenizer.ggml.tokens");
  }
  if (data.types.size() != data.tokens.size()) {
    return corrupt(std::to_string(data.types.size()) + " types for " +
                       std::to_string(data.tokens.size()) + " tokens",
                   "tokenizer.ggml.token_type");
  }
  for (const std::string& token : data.tokens) {
    if (token.size() > limits::token_bytes_max) {
      return corrupt("a token of " + std::to_string(token.size()) + " bytes; at most " +
                         std::to_string(limits::token_bytes_max),
                     "tokenizer.ggml.tokens");
    }
  }
  const auto in_range = [&](int32_t id) {
    return id >= -1 && id < static_cast<int32_t>(data.tokens.size());
  };
  if (!in_range(data.bos)) return corrupt("id out of range", "tokenizer.ggml.bos_token_id");
  if (!in_range(data.eos)) return corrupt("id out of range", "tokenizer.ggml.eos_token_id");
  if (!std::all_of(data.end_of_generation.begin(), data.end_of_generation.end(), in_range)) {
    return corrupt("id out of range", "tokenizer.ggml.eot_token_id");
  }
  return {};
}

Digest256 digest_of(const TokenizerData& data) {
  Sha256 hash;
  hash.update("outrider tokenizer 1").update(uint64_t{data.pre.size()}).update(data.pre);
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    hash.update(static_cast<uint64_t>(data.types[id])).update(uint64_t{data.tokens[id].size()});
    hash.update(data.tokens[id]);
  }
  for (const std::string& merge : data.merges) {
    hash.update(uint64_t{merge.size()}).update(merge);
  }
  hash.update(uint64_t{data.add_bos}).update(uint64_t{data.add_eos});
  hash.update(static_cast<uint64_t>(data.bos)).update(static_cast<uint64_t>(data.eos));
  return hash.finish();
}

/// "<0x0A>", as byte tokens are written.
bool parse_byte_token(std::string_view token, std::string& bytes) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return false;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return false;
    value = value * 16 + digit;
  }
  bytes.assign(1, static_cast<char>(value));
  return true;
}

}  // namespace

std::string first_difference(const TokenizerData& one, const TokenizerData& other) {
  const auto differ = [](const std::string& what, auto a, auto b) {
    return std::to_string(a) + " and " + std::to_string(b) + what;
  };
  if (one.pre != other.pre) return "they split texts by " + one.pre + " and " + other.pre;
  if (one.tokens.size() != other.tokens.size()) {
    return differ(" tokens", one.tokens.size(), other.tokens.size());
  }
  const auto token = std::ranges::mismatch(one.tokens, other.tokens).in1;
  if (token != one.tokens.end()) {
    return "token " + std::to_string(token - one.tokens.begin()) + " is another";
  }
  if (one.types != other.types) return "other types of tokens";
  if (one.merges != other.merges) return "other merges";
  if (one.bos != other.bos) return differ(" as BOS", one.bos, other.bos);
  if (one.eos != other.eos) return differ(" as EOS", one.eos, other.eos);
  if (one.add_bos != other.add_bos) return "BOS begins texts of one of them";
  if (one.add_eos != other.add_eos) return "EOS ends texts of one of them";
  return {};
}

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::create(TokenizerData data) {
  OUTRIDER_TRY(check(data));
  auto out = std::shared_ptr<Tokenizer>(new Tokenizer());
  OUTRIDER_ASSIGN(out->pre_tokenizer_, PreTokenizer::create(data.pre));
  OUTRIDER_ASSIGN(out->merger_, BpeMerger::create(data, out->pre_tokenizer_->whole_words_first()));
  OUTRIDER_TRY(out->build_bytes(data));
  out->build_specials(data);
  out->bos_ = data.bos;
  out->eos_ = data.eos;
  out->add_bos_ = data.add_bos && data.bos >= 0;
  out->add_eos_ = data.add_eos && data.eos >= 0;
  out->end_of_generation_ = data.end_of_generation;
  out->end_of_generation_.push_back(data.eos);
  auto& ends = out->end_of_generation_;
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  ends.erase(ends.begin(), std::lower_bound(ends.begin(), ends.end(), 0));
  out->fingerprint_ = digest_of(data);
  out->types_ = std::move(data.types);
  return std::shared_ptr<const Tokenizer>(std::move(out));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_gguf(const GgufFile& file) {
  auto data = tokenizer_data_from_gguf(file);
  if (!data) return data.error();
  return create(std::move(*data));
}

Result<void> Tokenizer::build_bytes(const TokenizerData& data) {
  offsets_.push_back(0);
  std::string bytes;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string& token = data.tokens[id];
    const bool decoded = data.types[id] == Type::byte     ? parse_byte_token(token, bytes)
                         : data.types[id] == Type::normal ? alphabet_to_bytes(token, bytes)
                                                          : false;
    bytes_ += decoded ? bytes : token;
    if (bytes_.size() > UINT32_MAX) {
      return fail(ErrorCode::too_large, "tokenizer.ggml.tokens: over 4 GiB of text",
                  "tokenizer.ggml.tokens");
    }
    offsets_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  return {};
}

void Tokenizer::build_specials(const TokenizerData& data) {
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const bool control = data.types[id] == Type::control;
    if ((!control && data.types[id] != Type::user_defined) || data.tokens[id].empty()) continue;
    const std::string& text = data.tokens[id];
    specials_[static_cast<uint8_t>(text[0])].push_back({text, static_cast<int32_t>(id), control});
  }
  for (auto& bucket : specials_) {
    std::stable_sort(bucket.begin(), bucket.end(), [](const Special& a, const Special& b) {
      return a.text.size() > b.text.size();
    });
  }
}

const Tokenizer::Special* Tokenizer::special_at(std::string_view text, size_t at,
                                                bool parse_special) const {
  for (const Special& special : specials_[static_cast<uint8_t>(text[at])]) {
    if (special.control && !parse_special) continue;
    if (text.substr(at, special.text.size()) == special.text) return &special;
  }
  return nullptr;
}

void Tokenizer::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  pre_tokenizer_->split(text, [&](std::string_view word) { merger_->append(word, ids); });
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::string repaired;
  if (!utf8_valid(text)) {
    repaired = utf8_replace_invalid(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  if (options.add_special && add_bos_) ids.push_back(bos_);
  size_t plain = 0;  // start of the text that no special token has taken yet
  for (size_t at = 0; at < text.size();) {
    const Special* special = special_at(text, at, options.parse_special);
    if (special == nullptr) {
      ++at;
      continue;
    }
    encode_plain(text.substr(plain, at - plain), ids);
    ids.push_back(special->id);
    at += special->text.size();
    plain = at;
  }
  encode_plain(text.substr(plain), ids);
  if (options.add_special && add_eos_) ids.push_back(eos_);
  return ids;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  OUTRIDER_CHECK(contains(id), id, size());
  const auto index = static_cast<size_t>(id);
  return std::string_view(bytes_).substr(offsets_[index], offsets_[index + 1] - offsets_[index]);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (!skip_special_tokens || !is_special(id)) bytes += token_bytes(id);
  }
  return utf8_replace_invalid(bytes);
}

bool Tokenizer::is_special(int32_t id) const {
  OUTRIDER_CHECK(contains(id), id, size());
  const Type type = types_[static_cast<size_t>(id)];
  return type == Type::control || type == Type::unknown;
}

}  // namespace outrider::model
