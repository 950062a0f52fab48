#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "kernels/kv_kind.hpp"

namespace outrider::kernels {

/// "q8_0" for both, or "k=q8_0,v=q4_0" in any order; "+hadamard" behind the kind of the keys turns
/// them. The error lists the kinds.
Result<KvKinds> parse_kv_kinds(std::string_view text);
/// As `parse_kv_kinds` takes it.
std::string kv_kinds_text(const KvKinds& kinds);
/// Of the keys: "q8_0" or "q8_0+hadamard".
std::string kv_key_kind_text(const KvKinds& kinds);

/// Whether heads of that many numbers can be kept so.
Result<void> check_kv_kinds(const KvKinds& kinds, uint32_t head_dim);

/// Several, by commas or blanks, none twice, at least one; a k= and a v= next to it are one.
Result<std::vector<KvKinds>> parse_kv_kinds_list(std::string_view text);

}  // namespace outrider::kernels
