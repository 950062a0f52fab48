#include "base/hint_counters.hpp"

namespace outrider {

std::string_view to_string(HintSource source) {
  switch (source) {
    case HintSource::own_text:
      return "own_text";
    case HintSource::past_outputs:
      return "past_outputs";
    case HintSource::draft_model:
      return "draft_model";
    case HintSource::other:
      return "other";
  }
  return "unknown";
}

std::string_view to_string(HintOutcome outcome) {
  switch (outcome) {
    case HintOutcome::used:
      return "used";
    case HintOutcome::late:
      return "late";
    case HintOutcome::mismatch:
      return "mismatch";
    case HintOutcome::absent:
      return "absent";
    case HintOutcome::full:
      return "full";
    case HintOutcome::malformed:
      return "malformed";
    case HintOutcome::no_lease:
      return "no_lease";
  }
  return "unknown";
}

HintCounters& HintCounters::operator+=(const HintCounters& other) {
  for (size_t i = 0; i < hints.size(); ++i) hints[i] += other.hints[i];
  drafts += other.drafts;
  draft_tokens += other.draft_tokens;
  accepted_tokens += other.accepted_tokens;
  for (size_t i = 0; i < accepted_at.size(); ++i) accepted_at[i] += other.accepted_at[i];
  for (size_t i = 0; i < by_source.size(); ++i) {
    by_source[i].draft_tokens += other.by_source[i].draft_tokens;
    by_source[i].accepted_tokens += other.by_source[i].accepted_tokens;
  }
  return *this;
}

}  // namespace outrider
