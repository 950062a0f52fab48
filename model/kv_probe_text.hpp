#pragma once

#include <string_view>

namespace outrider::model {

/// What the probe lets a model read: prose, a conversation, code and figures, written for this.
std::string_view kv_probe_text();

/// A fact that is put into a longer text and asked for at its end.
struct KvNeedle {
  std::string_view fact;
  std::string_view question;
  std::string_view answer;  ///< follows the question; digits, which cannot be guessed
};
inline constexpr size_t k_kv_needles = 3;
const KvNeedle (&kv_needles())[k_kv_needles];

}  // namespace outrider::model
