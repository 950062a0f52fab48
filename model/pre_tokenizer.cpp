#include "model/pre_tokenizer.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace outrider::model {
namespace {

// The patterns are those of the models' own tokenizers. Their engines take White_Space for \s;
// PCRE2's \s also has U+180E, so the class is written out (_ is it, ^_ its complement).
constexpr char k_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^_\\p{L}\\p{N}]+|[_]+(?![^_])|[_]+";
constexpr char k_digit[] = "\\p{N}";
constexpr char k_qwen2[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^_\\p{L}\\p{N}]+[\\r\\n]*|"
    "[_]*[\\r\\n]+|[_]+(?![^_])|[_]+";
constexpr char k_llama3[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^_\\p{L}\\p{N}]+[\\r\\n]*|[_]*[\\r\\n]+|[_]+(?![^_])|[_]+";

struct Recipe {
  std::string_view name;
  std::vector<const char*> patterns;  // applied one after the other, each to the pieces so far
  bool nfc = false;
  bool whole_words_first = false;
};

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> list = {
      {"gpt-2", {k_gpt2}},
      {"default", {k_gpt2}},
      {"smollm", {k_digit, k_gpt2}},
      {"qwen2", {k_qwen2}, true},
      {"llama-bpe", {k_llama3}, false, true},
  };
  return list;
}

std::string with_white_space(std::string_view pattern) {
  std::string out;
  for (const char c : pattern) {
    if (c == '_') {
      out += "\\t-\\r\\x{85}\\p{Z}";
    } else {
      out += c;
    }
  }
  return out;
}

/// One compiled pattern.
class Regex {
 public:
  explicit Regex(const char* pattern) {
    const std::string source = with_white_space(pattern);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                          PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    OUTRIDER_CHECK(code_ != nullptr, source, error, offset);
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);  // without JIT it is only slower
  }
  ~Regex() { pcre2_code_free(code_); }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  /// Calls `on_piece` for each match and for each gap between matches.
  template <class OnPiece>
  void split(std::string_view text, pcre2_match_data* match, const OnPiece& on_piece) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    size_t at = 0;
    while (at < text.size()) {
      int found = pcre2_match(code_, subject, text.size(), at, PCRE2_NO_UTF_CHECK, match, nullptr);
      if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
        found = pcre2_match(code_, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                            match, nullptr);
      }
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match);
      if (found < 1 || range[1] <= range[0]) break;  // no more matches: the rest is one piece
      if (range[0] > at) on_piece(text.substr(at, range[0] - at));
      on_piece(text.substr(range[0], range[1] - range[0]));
      at = range[1];
    }
    if (at < text.size()) on_piece(text.substr(at));
  }

 private:
  pcre2_code* code_;
};

struct MatchData {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  MatchData() = default;
  MatchData(const MatchData&) = delete;
  MatchData& operator=(const MatchData&) = delete;
  ~MatchData() { pcre2_match_data_free(data); }
};

/// Unicode NFC. Text without characters from U+0300 on is its own NFC.
std::string nfc(std::string_view text) {
  const auto is_high = [](char c) { return static_cast<uint8_t>(c) >= 0xCC; };
  if (std::none_of(text.begin(), text.end(), is_high)) return std::string(text);
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &out,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (size < 0) return std::string(text);
  std::string normalised(reinterpret_cast<const char*>(out), static_cast<size_t>(size));
  std::free(out);
  return normalised;
}

}  // namespace

struct PreTokenizer::State {
  const Recipe* recipe = nullptr;
  std::vector<std::unique_ptr<Regex>> regexes;
};

PreTokenizer::PreTokenizer() : state_(std::make_unique<State>()) {}
PreTokenizer::~PreTokenizer() = default;

Result<std::unique_ptr<PreTokenizer>> PreTokenizer::create(std::string_view name) {
  std::string known;
  for (const Recipe& recipe : recipes()) {
    known += (known.empty() ? "" : ", ") + std::string(recipe.name);
    if (recipe.name != name) continue;
    auto out = std::unique_ptr<PreTokenizer>(new PreTokenizer());
    out->state_->recipe = &recipe;
    for (const char* pattern : recipe.patterns) {
      out->state_->regexes.push_back(std::make_unique<Regex>(pattern));
    }
    return out;
  }
  return fail(ErrorCode::unsupported,
              "tokenizer.ggml.pre: pre-tokenizer \"" + std::string(name) +
                  "\" is not supported; known ones are " + known,
              "tokenizer.ggml.pre");
}

bool PreTokenizer::whole_words_first() const {
  return state_->recipe->whole_words_first;
}

void PreTokenizer::split(std::string_view text,
                         const std::function<void(std::string_view)>& on_word) const {
  const std::string normalised = state_->recipe->nfc ? nfc(text) : std::string();
  if (state_->recipe->nfc) text = normalised;
  const MatchData match;
  const auto& regexes = state_->regexes;
  if (regexes.size() == 1) {
    regexes[0]->split(text, match.data, on_word);
    return;
  }
  std::vector<std::string_view> pieces;
  regexes[0]->split(text, match.data, [&](std::string_view piece) { pieces.push_back(piece); });
  for (const std::string_view piece : pieces) regexes[1]->split(piece, match.data, on_word);
}

}  // namespace outrider::model
