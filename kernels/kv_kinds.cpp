#include "kernels/kv_kinds.hpp"

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

}  // namespace outrider::kernels
