#include "actors/draft_run.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"

namespace outrider::actors {
namespace {

/// A token that comes true with a lower probability is not worth computing before the next commit;
/// of several rows each may be worth less.
constexpr double k_probability_min = 0.1;
/// Guesses of each row: the token, and others that might have come.
constexpr int32_t k_guesses = 4;

/// The token that a row gave comes first.
void guesses_of(const model::ChoiceUpdate& update, std::vector<DraftGuess>& out) {
  out.clear();
  const TokenOut& token = update.tokens.front();
  DraftGuess& first = out.emplace_back();
  first.token = token.id;
  first.probability = 1;  // Drawn ones: whether they are followed must not depend on what they are.
  if (!update.drawn_from.empty()) {
    for (const auto& [id, weight] : update.drawn_from.front().entries) {
      first.drawn_from.emplace_back(id, weight);
    }
  }
  if (!token.logprob) return;
  first.probability = std::exp(token.logprob->logprob);
  for (const auto& [id, logprob] : token.logprob->top) {
    if (id == token.id || out.size() == k_guesses) continue;
    out.push_back({id, std::exp(logprob)});
  }
}

/// As the target samples it, without an end.
GenerationRequest drafting(const schema::DraftOpen& open) {
  GenerationRequest request = schema::from_wire(open.request);
  request.sampling.seed += open.key.choice;
  request.stop = {.max_tokens = std::numeric_limits<uint32_t>::max(), .ignore_eos = true};
  request.choices = 1;
  request.draft = verifies_by_rejection(request) ? DraftKind::drawn : DraftKind::same_noise;
  request.logprobs = request.draft == DraftKind::drawn ? -1 : k_guesses;
  request.prompt_logprobs = -1;
  request.deadline_ms = 0;
  request.kv = {};
  request.speculation.enabled = false;
  return request;
}

}  // namespace

DraftRun::DraftRun(const schema::DraftOpen& open, uint64_t session, uint32_t context_tokens)
    : key_(open.key),
      session_(session),
      request_(drafting(open)),
      prompt_tokens_(open.prompt_tokens),
      context_tokens_(context_tokens),
      hash_(model::k_empty_text) {}

DraftRun::Taken DraftRun::take(const schema::DraftCommit& commit) {
  if (commit.base_length + commit.tokens.size() >= text_.size()) {
    depth_ = commit.depth;
    target_step_ns_ = commit.step_ns;
  }
  if (commit.base_length > text_.size()) return Taken::gap;
  const size_t known = std::min(text_.size() - commit.base_length, commit.tokens.size());
  const auto news = commit.tokens.begin() + static_cast<long>(known);
  if (!std::equal(commit.tokens.begin(), news, text_.begin() + commit.base_length)) {
    return Taken::contradiction;
  }
  for (auto token = news; token != commit.tokens.end(); ++token) {
    tree_.commit(*token);
    for (Head& head : heads_) {
      if (!head.lost && !tree_.holds(head.at)) head.lost = length();
    }
    text_.push_back(*token);
    hash_ = model::text_hash(hash_, *token);
  }
  return Taken::yes;
}

bool DraftRun::submit(Stepper& engine) {
  GenerationRequest request = request_;
  const auto output = text_.begin() + prompt_tokens_;
  request.prompt.assign(text_.begin(), output);
  request.committed.assign(output, text_.end());
  const Head& head = heads_.emplace_back(Head{{session_, ++begun_}, tree_.root()});
  constexpr TimePoint k_unread{};  // it has no deadline, and nobody asks for its times
  return engine.submit(head.key, std::move(request), k_unread).ok();
}

bool DraftRun::steer(Stepper& engine, uint32_t rows, Duration own_step) {
  if (text_.size() >= context_tokens_ || prompt_tokens_ >= context_tokens_) return false;
  if (text_.size() < prompt_tokens_) return true;
  if (depth_ == 0) {
    rest(engine);
    return true;
  }
  if (heads_.empty()) return submit(engine);
  choose_leaves(request_.draft == DraftKind::drawn ? 1 : rows, own_step);
  for (Head& head : heads_) {
    const auto leaf =
        head.lost ? leaves_.end() : std::find(leaves_.begin(), leaves_.end(), head.at);
    head.wanted = leaf != leaves_.end();
    if (head.wanted) leaves_.erase(leaf);
  }
  for (const DraftTree::Id leaf : leaves_) {
    if (!send_to(engine, leaf, rows)) return false;
  }
  for (Head& head : heads_) {
    if (head.parked == head.wanted) engine.set_parked(head.key, !head.wanted);
    head.parked = !head.wanted;
  }
  return true;
}

/// What one step of the target verifies, the token that it draws behind that, and what can be
/// drafted during the step.
uint32_t DraftRun::lead_max(Duration own_step) const {
  const auto own_ns = static_cast<uint64_t>(std::max(own_step, Duration(1)).count());
  const uint64_t meanwhile = std::clamp<uint64_t>(target_step_ns_ / own_ns, 1, depth_);
  return static_cast<uint32_t>(std::min<uint64_t>(depth_ + 1 + meanwhile, model::k_hint_depth_max));
}

void DraftRun::choose_leaves(uint32_t rows, Duration own_step) {
  leaves_.clear();
  tree_.best_leaves(rows, lead_max(own_step), k_probability_min / rows, leaves_);
}

/// Tokens of the text that ends with a leaf which a head need not compute.
uint32_t DraftRun::common(const Head& head, DraftTree::Id leaf) const {
  return head.lost ? *head.lost : length() + tree_.common_depth(head.at, leaf);
}

/// The head that knows most of the leaf's text goes there, or another one forks from it.
bool DraftRun::send_to(Stepper& engine, DraftTree::Id leaf, uint32_t rows) {
  const auto nearest =
      std::max_element(heads_.begin(), heads_.end(), [&](const Head& a, const Head& b) {
        const uint32_t left = common(a, leaf);
        const uint32_t right = common(b, leaf);
        return left != right ? left < right : a.wanted && !b.wanted;
      });
  if (!nearest->wanted) return lead(engine, *nearest, leaf);
  const RequestKey source = nearest->key;
  if (heads_.size() >= rows) {
    const auto idle =
        std::find_if(heads_.begin(), heads_.end(), [](const Head& head) { return !head.wanted; });
    if (idle == heads_.end()) return true;
    engine.cancel(idle->key);
    heads_.erase(idle);
  }
  output_.assign(text_.begin() + prompt_tokens_, text_.end());
  tree_.path(leaf, output_);
  const Head head{.key = {session_, ++begun_}, .at = leaf, .wanted = true};
  // Where the engine has no room for another one, fewer leaves are followed.
  if (engine.fork(source, head.key, output_)) heads_.push_back(head);
  return true;
}

bool DraftRun::lead(Stepper& engine, Head& head, DraftTree::Id leaf) {
  output_.assign(text_.begin() + prompt_tokens_, text_.end());
  tree_.path(leaf, output_);
  head.at = leaf;
  head.wanted = true;
  head.lost.reset();
  return engine.redirect(head.key, output_);
}

bool DraftRun::advance(const model::ChoiceUpdate& update) {
  const auto head = std::find_if(heads_.begin(), heads_.end(),
                                 [&](const Head& item) { return item.key == update.key; });
  if (head == heads_.end()) return true;  // Cancelled.
  if (!update.tokens.empty()) {
    OUTRIDER_CHECK(!head->lost && update.tokens.size() == 1 &&
                       prompt_tokens_ + update.first_index == length() + tree_.depth(head->at),
                   update.first_index, text_.size());
    guesses_of(update, guesses_);
    head->at = tree_.grow(head->at, guesses_);
  }
  return !update.finish;
}

schema::DraftHint DraftRun::hint() const {
  return {key_, length(), hash_, tree_.branches()};
}

/// Nothing is wanted, perhaps for long: what it holds of the engine is others'.
void DraftRun::rest(Stepper& engine) {
  stop(engine);
  heads_.clear();
  tree_ = {};
}

void DraftRun::stop(Stepper& engine) const {
  for (const Head& head : heads_) engine.cancel(head.key);
}

}  // namespace outrider::actors
