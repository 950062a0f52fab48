#include "base/hint_counters.hpp"

#include <functional>

namespace outrider {

namespace {

template <class Change>
void change_each(HintCounters& mine, const HintCounters& other, Change change) {
  const auto one = [&](uint64_t& into, uint64_t from) { into = change(into, from); };
  for (size_t i = 0; i < mine.hints.size(); ++i) one(mine.hints[i], other.hints[i]);
  one(mine.drafts, other.drafts);
  one(mine.draft_tokens, other.draft_tokens);
  one(mine.accepted_tokens, other.accepted_tokens);
  for (size_t i = 0; i < mine.accepted_at.size(); ++i)
    one(mine.accepted_at[i], other.accepted_at[i]);
  for (size_t i = 0; i < mine.by_source.size(); ++i) {
    one(mine.by_source[i].draft_tokens, other.by_source[i].draft_tokens);
    one(mine.by_source[i].accepted_tokens, other.by_source[i].accepted_tokens);
  }
}

}  // namespace

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
  change_each(*this, other, std::plus<>());
  return *this;
}

HintCounters& HintCounters::operator-=(const HintCounters& other) {
  change_each(*this, other, std::minus<>());
  return *this;
}

}  // namespace outrider
