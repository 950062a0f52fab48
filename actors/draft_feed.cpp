#include "actors/draft_feed.hpp"

#include <algorithm>
#include <cmath>

#include "base/limits.hpp"

namespace outrider::actors {
namespace {

using schema::DraftEnd;

/// Weight of the newest step in how many hints come true.
constexpr float k_accepted_weight = 0.1f;

std::shared_ptr<const model::DraftDistribution> distribution_of(const schema::DraftBranch& branch) {
  if (branch.drawn_from.empty()) return nullptr;
  auto out = std::make_shared<model::DraftDistribution>();
  for (const auto& [id, weight] : branch.drawn_from) out->entries.push_back({id, weight});
  return out;
}

}  // namespace

uint32_t DraftFeed::Request::length(const Text& text) const {
  return static_cast<uint32_t>(prompt.size() + text.output.size());
}

void DraftFeed::Request::copy(const Text& text, uint32_t from, uint32_t count,
                              std::vector<int32_t>& out) const {
  for (uint32_t i = from; i < from + count; ++i) {
    out.push_back(i < prompt.size() ? prompt[i] : text.output[i - prompt.size()]);
  }
}

void DraftFeed::begin(RequestKey key, const GenerationRequest& request) {
  if (options_.depth_max == 0 || !request.speculation.enabled) return;
  // The last token needs no hint: its row is drawn from the row before.
  if (request.committed.size() + 1 >= request.stop.max_tokens) return;
  Request entry;
  entry.wire = schema::to_wire(request);
  entry.wire.stop_strings.clear();
  entry.wire.stop_token_ids.clear();
  entry.prompt = request.prompt;
  entry.texts.resize(request.choices);
  entry.texts.front().output = request.committed;
  const uint32_t own = request.speculation.depth_max;
  entry.depth_max = own == 0 ? options_.depth_max : std::min(own, options_.depth_max);
  requests_.insert_or_assign(key, std::move(entry));
  flush();
}

void DraftFeed::forget(RequestKey key) {
  if (const auto found = requests_.find(key); found != requests_.end()) finish(found);
}

void DraftFeed::set_parked(RequestKey key, bool parked) {
  const auto found = requests_.find(key);
  if (found == requests_.end()) return;
  found->second.parked = parked;
  flush();
}

void DraftFeed::finish(Requests::iterator found) {
  auto& [key, request] = *found;
  for (uint32_t choice = 0; choice < request.texts.size(); ++choice) close(key, request, choice);
  give_back(key, request);
  requests_.erase(found);
}

void DraftFeed::give_back(RequestKey key, Request& request) {
  if (request.may_hold) outbox_.ends.push_back({key, options_.target});
  request.may_hold = false;
}

/// Its place, where the draft has nothing to do any more before the request is over. It is not
/// asked for again: the router would choose alike.
void DraftFeed::give_back_unused(RequestKey key, Request& request) {
  const bool is_used = std::any_of(request.texts.begin(), request.texts.end(),
                                   [](const Text& it) { return !it.closed && !it.finished; });
  if (is_used) return;
  give_back(key, request);
  request.worker = 0;
}

void DraftFeed::close(RequestKey key, const Request& request, uint32_t choice) {
  if (!request.texts[choice].held) return;
  outbox_.to_drafts.emplace_back(
      request.worker, schema::DraftClose{key_of(key, request, choice), DraftEnd::finished});
}

void DraftFeed::commit(std::span<const model::ChoiceUpdate> updates, const StepReport& step) {
  if (options_.depth_max == 0) return;
  for (const model::ChoiceUpdate& update : updates) commit(update);
  if (step.decodes_only) step_ = step_ == Duration(0) ? step.time : step_ + (step.time - step_) / 8;
  duty_.observe(step, is_ready());
  flush();
}

void DraftFeed::commit(const model::ChoiceUpdate& update) {
  const auto found = requests_.find(update.key);
  if (found == requests_.end()) return;
  Request& request = found->second;
  Text& text = request.texts[update.choice];
  for (const TokenOut& token : update.tokens) text.output.push_back(token.id);
  if (!update.tokens.empty()) {
    text.decodes = true;
    const auto hints = static_cast<float>(update.tokens.size() - 1);
    text.accepted += k_accepted_weight * (hints - text.accepted);
  }
  if (!update.finish) return;
  close(update.key, request, update.choice);
  text.open = text.held = false;
  text.finished = true;
  const bool over = std::all_of(request.texts.begin(), request.texts.end(),
                                [](const Text& other) { return other.finished; });
  if (over) return finish(found);
  give_back_unused(update.key, request);
}

schema::DraftKey DraftFeed::key_of(RequestKey key, const Request& request, uint32_t choice) const {
  return {options_.target, key, choice, request.generation};
}

std::pair<DraftFeed::Request*, DraftFeed::Text*> DraftFeed::find(const schema::DraftKey& key) {
  const auto found = requests_.find(key.request);
  if (key.target != options_.target || found == requests_.end()) return {};
  Request& request = found->second;
  if (key.generation != request.generation || key.choice >= request.texts.size()) return {};
  Text& text = request.texts[key.choice];
  if (!text.open) return {};
  heard(request.worker);
  return {&request, &text};
}

void DraftFeed::ask_again() {
  for (auto& [key, request] : requests_) request.asked = false;
  flush();
}

void DraftFeed::take(const schema::DraftsKnown& known) {
  duty_.set_available(known.drafts > 0);
  flush();
}

void DraftFeed::take(const schema::DraftLease& lease) {
  const auto found = requests_.find(lease.request);
  if (found == requests_.end() || lease.generation <= found->second.generation) return;
  Request& request = found->second;
  if (request.asked && !request.may_hold) return;  // Given back when this was on its way.
  for (uint32_t choice = 0; choice < request.texts.size(); ++choice) {
    close(lease.request, request, choice);
    Text& text = request.texts[choice];
    text.open = text.held = text.ready = text.closed = false;
    text.sent = text.depth = 0;
  }
  request.generation = lease.generation;
  request.worker = lease.worker;
  flush();
}

void DraftFeed::take(const schema::DraftReady& ready) {
  find(ready.key);
}

void DraftFeed::take(const schema::DraftHints& hints) {
  size_t branches = 0;
  for (const schema::DraftHint& hint : hints.hints) branches += hint.branches.size();
  if (hints.hints.size() > limits::draft_entries_max || branches > limits::draft_branches_max) {
    outbox_.unleased += hints.hints.size();  // No draft of ours says so much at once.
    return;
  }
  for (const schema::DraftHint& hint : hints.hints) {
    const auto [request, text] = find(hint.key);
    if (text == nullptr || text->depth == 0) {
      ++outbox_.unleased;
      continue;
    }
    text->ready = true;
    DraftedHint& out = outbox_.hints.emplace_back();
    out.key = hint.key.request;
    out.choice = hint.key.choice;
    out.base_length = hint.base_length;
    out.base_hash = hint.base_hash;
    for (const schema::DraftBranch& branch : hint.branches) {
      out.branches.push_back(
          {branch.parent, branch.token, branch.confidence, distribution_of(branch)});
    }
  }
}

void DraftFeed::take(const schema::DraftResync& resync) {
  const auto [request, text] = find(resync.key);
  if (text == nullptr) return;
  text->sent = std::min(resync.from_length, text->sent);
  flush();
}

void DraftFeed::take(const schema::DraftClose& closing) {
  const auto [request, text] = find(closing.key);
  if (text == nullptr) return;
  text->open = text->ready = false;
  text->sent = text->depth = 0;
  text->closed = closing.reason != DraftEnd::unknown;  // Else it is opened anew.
  // An `unknown` may be older than the last open.
  text->held = !text->closed;
  give_back_unused(closing.key.request, *request);
}

bool DraftFeed::has_leased(uint64_t worker) const {
  return std::any_of(requests_.begin(), requests_.end(),
                     [worker](const auto& entry) { return entry.second.worker == worker; });
}

void DraftFeed::beat() {
  std::erase_if(unanswered_, [&](const auto& entry) { return !has_leased(entry.first); });
  for (auto& [worker, count] : unanswered_) {
    count = std::min(count, limits::draft_unanswered_max - 1);
  }
  flush();
}

bool DraftFeed::is_ready() const {
  uint32_t ready = 0;
  for (const auto& [key, request] : requests_) {
    for (const Text& text : request.texts) ready += text.open && text.ready ? 1 : 0;
  }
  return ready > 0 && 2 * ready >= open();
}

uint32_t DraftFeed::open() const {
  uint32_t open = 0;
  for (const auto& [key, request] : requests_) {
    for (const Text& text : request.texts) open += text.open ? 1 : 0;
  }
  return open;
}

/// Twice what came true of late, and some more: as much as may be used, and a little to learn from.
uint32_t DraftFeed::depth_of(const Request& request, const Text& text) const {
  if (options_.duty.always) return request.depth_max;
  const auto useful = 2 + static_cast<uint32_t>(std::ceil(2 * text.accepted));
  return std::min(useful, request.depth_max);
}

void DraftFeed::flush() {
  const bool wanted = on();
  const bool begins = wanted && !was_on_;
  was_on_ = wanted;
  for (auto& [key, request] : requests_) {
    if (begins) {
      for (Text& text : request.texts) text.ready = false;
    }
    flush(key, request, wanted && !request.parked);
  }
}

/// It has begun, or will at once: what only waits takes no place with a draft from what runs.
bool DraftFeed::is_running(const Request& request) const {
  return requests_.size() <= options_.sequences ||
         std::ranges::any_of(request.texts, [](const Text& text) { return !text.output.empty(); });
}

/// A draft that competes for cores computes a prompt when the target has: what that costs is then
/// paid by steps that are measured, and a first token does not come later for it.
bool DraftFeed::may_open(const Text& text) const {
  return text.decodes || !options_.duty.competes;
}

void DraftFeed::flush(RequestKey key, Request& request, bool wanted) {
  if (wanted && !request.asked && is_running(request)) {
    request.asked = request.may_hold = true;
    schema::LeaseDraft& ask = outbox_.asks.emplace_back();
    ask.request = key;
    ask.target = options_.target;
    ask.tokenizer = options_.tokenizer;
    ask.runs = static_cast<uint32_t>(request.texts.size());
    ask.generation = request.generation;
  }
  if (request.worker == 0) return;
  for (uint32_t choice = 0; choice < request.texts.size(); ++choice) {
    Text& text = request.texts[choice];
    if (text.finished || text.closed) continue;
    // That nothing is wanted any more goes to silent ones as well.
    if (wanted && unanswered_[request.worker] >= limits::draft_unanswered_max) return;
    const schema::DraftKey draft_key = key_of(key, request, choice);
    if (wanted && !text.open && may_open(text)) {
      text.open = text.held = true;
      outbox_.to_drafts.emplace_back(
          request.worker, schema::DraftOpen{draft_key,
                                            {},
                                            options_.tokenizer,
                                            request.wire,
                                            static_cast<uint32_t>(request.prompt.size())});
    }
    if (!text.open) continue;
    const uint32_t depth = wanted ? depth_of(request, text) : 0;
    const bool has_news = wanted && text.sent < request.length(text);
    if (has_news || (depth == 0) != (text.depth == 0)) send(draft_key, request, text, depth);
  }
}

/// What the draft has not been told, in as many messages as it takes.
void DraftFeed::send(schema::DraftKey key, const Request& request, Text& text, uint32_t depth) {
  text.depth = depth;
  uint32_t left = depth == 0 ? 0 : request.length(text) - text.sent;
  do {
    const uint32_t count = std::min(left, limits::prompt_part_tokens_max);
    schema::DraftCommit& commit =
        message_for(request, count)
            .commits.emplace_back(schema::DraftCommit{
                key, text.sent, {}, depth, static_cast<uint64_t>(step_.count())});
    request.copy(text, text.sent, count, commit.tokens);
    text.sent += count;
    left -= count;
  } while (left > 0);
}

/// The last message to its draft, if that has room for so many tokens.
schema::DraftCommits& DraftFeed::message_for(const Request& request, size_t tokens) {
  for (auto at = outbox_.to_drafts.rbegin(); at != outbox_.to_drafts.rend(); ++at) {
    if (at->first != request.worker) continue;
    auto* message = std::get_if<schema::DraftCommits>(&at->second);
    if (message == nullptr) break;  // An open: what follows it stays behind it.
    size_t held = tokens;
    for (const schema::DraftCommit& commit : message->commits) held += commit.tokens.size();
    if (message->commits.size() >= limits::draft_entries_max ||
        held > limits::prompt_part_tokens_max) {
      break;
    }
    return *message;
  }
  ++unanswered_[request.worker];
  outbox_.to_drafts.emplace_back(request.worker, schema::DraftCommits{});
  return std::get<schema::DraftCommits>(outbox_.to_drafts.back().second);
}

}  // namespace outrider::actors
