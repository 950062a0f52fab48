#pragma once

#include <string_view>

#include "base/result.hpp"
#include "kernels/kv_kind.hpp"

namespace outrider::kernels {

/// Kinds of keys and of values.
struct KvKinds {
  KvKind k = KvKind::fp16;
  KvKind v = KvKind::fp16;
};

/// "q8_0" for both, or "k=q8_0,v=q4_0". The error lists the kinds.
Result<KvKinds> parse_kv_kinds(std::string_view text);

}  // namespace outrider::kernels
