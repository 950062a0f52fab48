#include "actors/draft_runs.hpp"

#include <algorithm>
#include <utility>

namespace outrider::actors {

using schema::DraftEnd;

namespace {

/// Rows of one run: more leaves are hardly worth a row each.
constexpr uint32_t k_rows_max = 40;

}  // namespace

template <class Which>
void DraftRuns::forget(Which which) {
  std::erase_if(runs_, [&](const Slot& slot) {
    if (!which(slot)) return false;
    slot.run->stop(engine_);
    return true;
  });
}

void DraftRuns::take(const DraftInput& input) {
  if (const auto* message = std::get_if<schema::DraftOpen>(&input)) {
    open(*message);
  } else if (const auto* commits = std::get_if<schema::DraftCommits>(&input)) {
    for (const schema::DraftCommit& item : commits->commits) commit(item);
  } else if (const auto* closing = std::get_if<schema::DraftClose>(&input)) {
    close(closing->key);
  } else if (const auto* gone = std::get_if<TargetGone>(&input)) {
    forget([&](const Slot& slot) { return slot.run->key().target == gone->target; });
  } else {
    ++beats_;
    forget([&](const Slot& slot) { return beats_ - slot.heard > limits::draft_run_beats_max; });
  }
}

/// Of whatever generation.
DraftRuns::Slots::iterator DraftRuns::find(const schema::DraftKey& key) {
  return std::find_if(runs_.begin(), runs_.end(), [&](const Slot& slot) {
    const schema::DraftKey& own = slot.run->key();
    return own.target == key.target && own.request == key.request && own.choice == key.choice;
  });
}

void DraftRuns::open(const schema::DraftOpen& open) {
  if (open.tokenizer != options_.tokenizer) {
    replies_.closes.push_back({open.key, DraftEnd::tokenizer});
    return;
  }
  if (const auto found = find(open.key); found != runs_.end()) {
    const uint32_t generation = found->run->key().generation;
    if (generation > open.key.generation) return;
    if (generation == open.key.generation) {
      found->heard = beats_;
      replies_.readies.push_back({open.key, found->run->length()});
      return;
    }
    end(found, DraftEnd::finished);
  }
  if (runs_.size() >= options_.runs_max) {
    end(std::min_element(runs_.begin(), runs_.end(),
                         [](const Slot& a, const Slot& b) { return a.used < b.used; }),
        DraftEnd::displaced);
  }
  runs_.push_back({std::make_unique<DraftRun>(open, ++last_session_, options_.context_tokens),
                   ++uses_, beats_});
  replies_.readies.push_back({open.key, 0});
}

void DraftRuns::commit(const schema::DraftCommit& commit) {
  const auto found = find(commit.key);
  if (found == runs_.end()) {
    replies_.closes.push_back({commit.key, DraftEnd::unknown});
    return;
  }
  if (found->run->key().generation != commit.key.generation) return;
  found->used = ++uses_;
  found->heard = beats_;
  switch (found->run->take(commit)) {
    case DraftRun::Taken::yes:
      return steer(found);
    case DraftRun::Taken::gap:
      replies_.resyncs.push_back({commit.key, found->run->length()});
      return steer(found);
    case DraftRun::Taken::contradiction:
      return end(found, DraftEnd::exhausted);
  }
}

void DraftRuns::close(const schema::DraftKey& key) {
  const auto found = find(key);
  if (found == runs_.end() || found->run->key().generation != key.generation) return;
  found->run->stop(engine_);
  runs_.erase(found);
}

/// Of each run.
uint32_t DraftRuns::rows() const {
  return std::clamp(options_.rows_max / std::max(size(), 1u), 1u, k_rows_max);
}

void DraftRuns::steer(Slots::iterator slot) {
  if (!slot->run->steer(engine_, rows(), own_step_)) end(slot, DraftEnd::exhausted);
}

void DraftRuns::end(Slots::iterator slot, DraftEnd reason) {
  slot->run->stop(engine_);
  replies_.closes.push_back({slot->run->key(), reason});
  runs_.erase(slot);
}

void DraftRuns::advance(std::span<const model::ChoiceUpdate> updates, Duration time) {
  if (updates.empty()) return;
  own_step_ = own_step_ == Duration(0) ? time : own_step_ + (time - own_step_) / 8;
  grown_.clear();
  for (const model::ChoiceUpdate& update : updates) {
    const auto slot = std::find_if(runs_.begin(), runs_.end(), [&](const Slot& item) {
      return item.run->session() == update.key.session;
    });
    if (slot == runs_.end()) continue;  // Closed meanwhile.
    const uint64_t session = update.key.session;
    if (!update.error.empty()) replies_.error = update.error;
    if (!slot->run->advance(update)) {
      end(slot, DraftEnd::exhausted);
    } else if (std::find(grown_.begin(), grown_.end(), session) == grown_.end()) {
      grown_.push_back(session);
    }
  }
  for (const uint64_t session : grown_) {
    const auto slot = std::find_if(runs_.begin(), runs_.end(), [&](const Slot& item) {
      return item.run->session() == session;
    });
    if (slot == runs_.end()) continue;  // Another of its sequences has ended.
    schema::DraftHint hint = slot->run->hint();
    if (!hint.branches.empty()) replies_.hints.push_back(std::move(hint));
    steer(slot);
  }
}

}  // namespace outrider::actors
