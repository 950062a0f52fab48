#include "base/answer_traits.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace outrider {
namespace {

constexpr size_t k_shown_bytes = 12;

/// Digests are long, and their beginnings tell them apart.
std::string shown(std::string_view value) {
  if (value.empty()) return "none";
  if (value.size() <= 2 * k_shown_bytes) return std::string(value);
  return std::string(value.substr(0, k_shown_bytes)) + "…";
}

std::string_view value_of(const AnswerTraits& traits, std::string_view name) {
  const auto found = std::ranges::find(traits, name, &AnswerTraits::value_type::first);
  return found == traits.end() ? std::string_view() : found->second;
}

}  // namespace

AnswerTraits named_in(const AnswerTraits& traits, const AnswerTraits& wanted) {
  AnswerTraits named;
  std::ranges::copy_if(traits, std::back_inserter(named), [&](const auto& trait) {
    return std::ranges::find(wanted, trait.first, &AnswerTraits::value_type::first) != wanted.end();
  });
  return named;
}

bool has_all(const AnswerTraits& own, const AnswerTraits& wanted) {
  return std::ranges::all_of(
      wanted, [&](const auto& trait) { return value_of(own, trait.first) == trait.second; });
}

std::string differences(const AnswerTraits& own, const AnswerTraits& wanted) {
  AnswerTraits all = own;
  for (const auto& trait : wanted) {
    if (std::ranges::find(own, trait.first, &AnswerTraits::value_type::first) == own.end()) {
      all.push_back({trait.first, ""});
    }
  }
  std::string text;
  for (const auto& [name, value] : all) {
    const std::string_view other = value_of(wanted, name);
    if (value == other) continue;
    text += (text.empty() ? "" : "; ") + name + ' ' + shown(value) + ", not " + shown(other);
  }
  return text;
}

}  // namespace outrider
