#include "kernels/kv_kind_flags.hpp"

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

#include "base/comma_list.hpp"

namespace outrider::kernels {
namespace {

constexpr std::string_view k_hadamard = "+hadamard";

/// What is wrong with a name that is nearly right; empty: nothing is known.
const char* hint_of(std::string_view name) {
  if (name == "auto") return " (auto stands alone, and tries turned keys itself)";
  if (name.ends_with(k_hadamard)) return " (values are not turned)";
  if (name.starts_with("k=") || name.starts_with("v=")) return " (keys and values need one each)";
  return "";
}

Result<KvKind> parse_kind(std::string_view name) {
  if (const auto kind = kv_kind_from_name(name)) return *kind;
  std::string known;
  for (const KvKind kind : k_kv_kinds) {
    known += (known.empty() ? "" : ", ") + std::string(kv_kind_name(kind));
  }
  return fail(ErrorCode::invalid_argument,
              "\"" + std::string(name) + "\"" + hint_of(name) + " is not one of " + known +
                  ", nor KIND+hadamard (of keys), nor k=KIND,v=KIND",
              "kv-kind");
}

/// Without the blanks around "=".
std::string joined(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_blank = c == ' ' || c == '\t';
    if (is_blank && out.ends_with('=')) continue;
    if (c == '=') out.resize(out.find_last_not_of(" \t") + 1);
    out += c;
  }
  return out;
}

bool is_half(std::string_view word) {
  return (word.starts_with("k=") || word.starts_with("v=")) && word.find(',') == word.npos;
}

/// What stands between commas and blanks, two halves together; "" where a comma lacks a neighbour.
std::vector<std::string> entries_of(const std::string& text) {
  std::vector<std::string> entries;
  const auto add = [&](const std::string& word) {
    const bool second = !entries.empty() && is_half(entries.back()) && is_half(word) &&
                        entries.back().front() != word.front();
    if (second) {
      entries.back() += "," + word;
    } else {
      entries.push_back(word);
    }
  };
  for (const std::string_view entry : comma_list(text)) {
    std::istringstream words{std::string(entry)};
    std::string word;
    if (!(words >> word)) add("");
    for (; words; words >> word) add(word);
  }
  return entries;
}

}  // namespace

Result<KvKinds> parse_kv_kinds(std::string_view text) {
  const std::string whole = joined(text);
  const std::vector<std::string_view> entries = comma_list(whole);
  std::string_view keys = entries.front();
  std::string_view values = entries.size() == 2 ? entries.back() : "";
  if (keys.starts_with("v=")) std::swap(keys, values);
  const bool apart = keys.starts_with("k=") && values.starts_with("v=");
  keys = apart ? keys.substr(2) : trimmed(whole);
  const bool hadamard = keys.ends_with(k_hadamard);
  if (hadamard) keys.remove_suffix(k_hadamard.size());
  const auto k = parse_kind(keys);
  if (!k) return k.error();
  const auto v = apart ? parse_kind(values.substr(2)) : k;
  if (!v) return v.error();
  return KvKinds{*k, *v, hadamard};
}

std::string kv_key_kind_text(const KvKinds& kinds) {
  return std::string(kv_kind_name(kinds.k)) + std::string(kinds.k_hadamard ? k_hadamard : "");
}

std::string kv_kinds_text(const KvKinds& kinds) {
  const std::string k = kv_key_kind_text(kinds);
  return kinds.k == kinds.v ? k : "k=" + k + ",v=" + std::string(kv_kind_name(kinds.v));
}

Result<void> check_kv_kinds(const KvKinds& kinds, uint32_t head_dim) {
  if (kinds.suit(head_dim)) return {};
  return fail(ErrorCode::unsupported,
              "kv-kind: " + kv_key_kind_text(kinds) +
                  " needs heads whose size is a power of two, the model's have " +
                  std::to_string(head_dim),
              "kv-kind");
}

Result<std::vector<KvKinds>> parse_kv_kinds_list(std::string_view text) {
  std::vector<KvKinds> list;
  for (const std::string& entry : entries_of(joined(text))) {
    const auto kinds = parse_kv_kinds(entry);
    if (!kinds) return kinds.error();
    if (std::find(list.begin(), list.end(), *kinds) != list.end()) {
      return fail(ErrorCode::invalid_argument, "\"" + entry + "\" stands there twice",
                  "kv-candidates");
    }
    list.push_back(*kinds);
  }
  return list;
}

}  // namespace outrider::kernels
