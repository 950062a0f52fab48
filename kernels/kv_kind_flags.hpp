#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "kernels/kv_kind.hpp"

namespace outrider::kernels {

/// Kinds of keys and of values.
struct KvKinds {
  KvKind k = KvKind::fp16;
  KvKind v = KvKind::fp16;

  friend bool operator==(const KvKinds&, const KvKinds&) = default;
};

/// "q8_0" for both, or "k=q8_0,v=q4_0". The error lists the kinds.
Result<KvKinds> parse_kv_kinds(std::string_view text);
/// As `parse_kv_kinds` takes it.
std::string kv_kinds_text(const KvKinds& kinds);

/// Several, with blanks between them, none twice, at least one.
Result<std::vector<KvKinds>> parse_kv_kinds_list(std::string_view text);

}  // namespace outrider::kernels
