#include "model/pre_tokenizer.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/limits.hpp"

namespace outrider::model {
namespace {

// The patterns are those of the models' own tokenizers. In brackets L, N and _ stand for the
// classes below: letters, numbers and white space.
constexpr char k_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?[L]+| ?[N]+| ?[^_LN]+|[_]+(?![^_])|[_]+";
constexpr char k_digit[] = "[N\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}]";  // of Unicode 17
constexpr char k_qwen2[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\nLN]?[L]+|[N]| ?[^_LN]+[\\r\\n]*|[_]*[\\r\\n]+|"
    "[_]+(?![^_])|[_]+";
constexpr char k_llama3[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\nLN]?[L]+|[N]{1,3}| ?[^_LN]+[\\r\\n]*|[_]*[\\r\\n]+|"
    "[_]+(?![^_])|[_]+";

// PCRE2 10.42 knows Unicode 14, the published tokenizers 16: what came between is listed.
constexpr char k_letters[] =
    "\\p{L}"
    "\\x{1C89}\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}\\x{105C0}-\\x{105F3}"
    "\\x{10D4A}-\\x{10D65}\\x{10D6F}-\\x{10D85}\\x{10EC2}-\\x{10EC4}\\x{1123F}\\x{11240}"
    "\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}\\x{113D3}"
    "\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}\\x{1342F}"
    "\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}\\x{16D40}-\\x{16D6C}"
    "\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}\\x{1E030}-\\x{1E06D}\\x{1E4D0}-\\x{1E4EB}"
    "\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}";
constexpr char k_numbers[] =
    "\\p{N}"
    "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}"
    "\\x{16130}-\\x{16139}\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1D2C0}-\\x{1D2D3}"
    "\\x{1E4F0}-\\x{1E4F9}\\x{1E5F1}-\\x{1E5FA}";
// White_Space, which is what \s means to them. PCRE2's own \s also has U+180E.
constexpr char k_white_space[] = "\\t-\\r\\x{85}\\p{Z}";

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

std::string with_classes(std::string_view pattern) {
  std::string out;
  for (const char c : pattern) {
    if (c == 'L') {
      out += k_letters;
    } else if (c == 'N') {
      out += k_numbers;
    } else if (c == '_') {
      out += k_white_space;
    } else {
      out += c;
    }
  }
  return out;
}

/// PCRE2's working memory, for one thread at a time.
struct MatchState {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);

  MatchState() {
    OUTRIDER_CHECK(data != nullptr && context != nullptr);
    pcre2_set_match_limit(context, limits::split_match_steps_max);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;
  ~MatchState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
};

/// One compiled pattern.
class Regex {
 public:
  explicit Regex(const char* pattern) {
    const std::string source = with_classes(pattern);
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
  void split(std::string_view text, const MatchState& match, const OnPiece& on_piece) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    size_t at = 0;
    while (at < text.size()) {
      int found = pcre2_match(code_, subject, text.size(), at, PCRE2_NO_UTF_CHECK, match.data,
                              match.context);
      if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
        found = pcre2_match(code_, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                            match.data, match.context);
      }
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.data);
      // No more digits; the other patterns match any text. Should a limit strike: one piece.
      if (found < 1 || range[1] <= range[0]) break;
      if (range[0] > at) on_piece(text.substr(at, range[0] - at));
      on_piece(text.substr(range[0], range[1] - range[0]));
      at = range[1];
    }
    if (at < text.size()) on_piece(text.substr(at));
  }

 private:
  pcre2_code* code_;
};

uint8_t combining_class(utf8proc_int32_t c) {
  return static_cast<uint8_t>(utf8proc_get_property(c)->combining_class);
}

/// Characters of valid UTF-8, canonically decomposed, not yet in order.
std::vector<utf8proc_int32_t> decompose(std::string_view text) {
  std::vector<utf8proc_int32_t> out;
  out.reserve(text.size());
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t c = 0;
    at += static_cast<size_t>(
        utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &c));
    utf8proc_int32_t parts[8];  // the longest has 4
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(c, parts, std::size(parts), UTF8PROC_DECOMPOSE, &boundary);
    OUTRIDER_CHECK(count >= 1 && count <= utf8proc_ssize_t{std::size(parts)}, c, count);
    out.insert(out.end(), parts, parts + count);
  }
  return out;
}

/// Canonical order. utf8proc_map does this too, but in quadratic time: 125 kB of accents took it
/// 20 seconds.
void sort_marks(std::vector<utf8proc_int32_t>& characters) {
  const auto is_starter = [](utf8proc_int32_t c) { return combining_class(c) == 0; };
  for (auto at = characters.begin(); at != characters.end();) {
    const auto end = std::find_if(at, characters.end(), is_starter);
    std::stable_sort(at, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    at = std::find_if_not(end, characters.end(), is_starter);
  }
}

/// Unicode NFC of valid UTF-8. Text without characters from U+0300 on is its own NFC.
std::string nfc(std::string_view text) {
  const auto is_high = [](char c) { return static_cast<uint8_t>(c) >= 0xCC; };
  if (std::none_of(text.begin(), text.end(), is_high)) return std::string(text);
  std::vector<utf8proc_int32_t> characters = decompose(text);
  sort_marks(characters);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  OUTRIDER_CHECK(count >= 0, count);
  characters.resize(static_cast<size_t>(count));
  std::string out;
  out.reserve(text.size());
  for (const utf8proc_int32_t c : characters) {
    utf8proc_uint8_t bytes[4];
    const auto size = static_cast<size_t>(utf8proc_encode_char(c, bytes));
    out.append(reinterpret_cast<const char*>(bytes), size);
  }
  return out;
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
  const MatchState match;
  const auto& regexes = state_->regexes;
  if (regexes.size() == 1) {
    regexes[0]->split(text, match, on_word);
    return;
  }
  std::vector<std::string_view> pieces;
  regexes[0]->split(text, match, [&](std::string_view piece) { pieces.push_back(piece); });
  for (const std::string_view piece : pieces) regexes[1]->split(piece, match, on_word);
}

}  // namespace outrider::model
