#include "kvstore/cold_stats.hpp"

namespace outrider::kvstore {
namespace {

template <class Reason, size_t n>
std::string_view name_of(const std::string_view (&names)[n], Reason reason) {
  static_assert(n == static_cast<size_t>(Reason::count_), "a name for each reason");
  const auto at = static_cast<size_t>(reason);
  return at < n ? names[at] : "unknown";
}

}  // namespace

std::string_view to_string(Miss reason) {
  static constexpr std::string_view k_names[] = {
      "complete",     "absent",    "partial",     "other_namespace", "expired",
      "gated",        "timed_out", "cancelled",   "aged_out",        "corrupt",
      "wrong_tokens", "io_error",  "unavailable", "overloaded"};
  return name_of(k_names, reason);
}

std::string_view to_string(Skip reason) {
  static constexpr std::string_view k_names[] = {"queue_full", "duplicate",    "invalid",
                                                 "over_quota", "dead_bytes",   "index_full",
                                                 "orphan",     "write_failed", "unavailable"};
  return name_of(k_names, reason);
}

std::string_view to_string(Removal reason) {
  static constexpr std::string_view k_names[] = {"quota",   "aged_out", "expired",
                                                 "corrupt", "dropped",  "unreadable"};
  return name_of(k_names, reason);
}

std::string_view to_string(Outage reason) {
  static constexpr std::string_view k_names[] = {"none",     "opening", "closed", "read_only",
                                                 "no_space", "damaged", "in_use", "io_error"};
  return name_of(k_names, reason);
}

}  // namespace outrider::kvstore
