#include "kernels/kv_kind_flags.hpp"

#include <algorithm>
#include <string>

namespace outrider::kernels {
namespace {

Result<KvKind> parse_kind(std::string_view name) {
  if (const auto kind = kv_kind_from_name(name)) return *kind;
  std::string known;
  for (const KvKind kind : k_kv_kinds) {
    known += (known.empty() ? "" : ", ") + std::string(kv_kind_name(kind));
  }
  return fail(ErrorCode::invalid_argument,
              "\"" + std::string(name) + "\" is not one of " + known + ", nor k=KIND,v=KIND",
              "kv-kind");
}

}  // namespace

Result<KvKinds> parse_kv_kinds(std::string_view text) {
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos || !text.starts_with("k=") ||
      !text.substr(comma + 1).starts_with("v=")) {
    const auto both = parse_kind(text);
    if (!both) return both.error();
    return KvKinds{*both, *both};
  }
  const auto k = parse_kind(text.substr(2, comma - 2));
  if (!k) return k.error();
  const auto v = parse_kind(text.substr(comma + 3));
  if (!v) return v.error();
  return KvKinds{*k, *v};
}

std::string kv_kinds_text(const KvKinds& kinds) {
  const std::string k(kv_kind_name(kinds.k));
  return kinds.k == kinds.v ? k : "k=" + k + ",v=" + std::string(kv_kind_name(kinds.v));
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
