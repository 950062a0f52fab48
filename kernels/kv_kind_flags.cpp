#include "kernels/kv_kind_flags.hpp"

#include <algorithm>
#include <string>

namespace outrider::kernels {
namespace {

constexpr std::string_view k_hadamard = "+hadamard";

Result<KvKind> parse_kind(std::string_view name) {
  if (const auto kind = kv_kind_from_name(name)) return *kind;
  std::string known;
  for (const KvKind kind : k_kv_kinds) {
    known += (known.empty() ? "" : ", ") + std::string(kv_kind_name(kind));
  }
  return fail(ErrorCode::invalid_argument,
              "\"" + std::string(name) + "\" is not one of " + known +
                  ", nor KIND+hadamard (of keys), nor k=KIND,v=KIND",
              "kv-kind");
}

}  // namespace

Result<KvKinds> parse_kv_kinds(std::string_view text) {
  const size_t comma = text.find(',');
  const bool apart = comma != std::string_view::npos && text.starts_with("k=") &&
                     text.substr(comma + 1).starts_with("v=");
  std::string_view keys = apart ? text.substr(2, comma - 2) : text;
  const bool hadamard = keys.ends_with(k_hadamard);
  if (hadamard) keys.remove_suffix(k_hadamard.size());
  const auto k = parse_kind(keys);
  if (!k) return k.error();
  const auto v = apart ? parse_kind(text.substr(comma + 3)) : k;
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
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.empty()) break;
    const std::string_view word = text.substr(0, text.find(' '));
    const auto kinds = parse_kv_kinds(word);
    if (!kinds) return kinds.error();
    if (std::find(list.begin(), list.end(), *kinds) != list.end()) {
      return fail(ErrorCode::invalid_argument, "\"" + std::string(word) + "\" stands there twice",
                  "kv-candidates");
    }
    list.push_back(*kinds);
    text.remove_prefix(word.size());
  }
  if (list.empty()) return fail(ErrorCode::invalid_argument, "names no kind", "kv-candidates");
  return list;
}

}  // namespace outrider::kernels
