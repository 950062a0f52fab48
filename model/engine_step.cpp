#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "model/engine_state.hpp"
#include "model/rejection.hpp"

namespace outrider::model {

using Stage = Choice::Stage;

ChoiceUpdate& Engine::State::update_of(ActiveRequest& request, Choice& choice) {
  if (!choice.update) {
    choice.update = updates.size();
    ChoiceUpdate update;
    update.key = request.key;
    update.choice = choice.index;
    update.first_index = static_cast<uint32_t>(choice.output.size());
    update.prompt_first_index = request.prompt_scored;
    updates.push_back(std::move(update));
  }
  return updates[*choice.update];
}

void Engine::State::finish(ActiveRequest& request, Choice& choice, Finish finish,
                           std::string error) {
  OUTRIDER_CHECK(choice.stage != Stage::done, request.key.session, choice.index);
  ChoiceUpdate& update = update_of(request, choice);
  update.finish = finish;
  update.error = std::move(error);
  update.timings = request.timings(now);
  choice.stage = Stage::done;
  // Also of those that had no drafts: hints could pay later.
  const bool speculates = request.request.speculation.enabled && !draft_control.is_off();
  if (speculates && options.speculation.ngram) {
    past_outputs.add(request.root, request.owner, choice.output);
  }
  choice.drafts.reset();
  leave_read(request, choice);
  choice.kv.reset();
}

uint32_t Engine::State::running(bool drafts_only) const {
  uint32_t count = 0;
  for (const auto& [key, request] : requests) {
    if (request->parked || (drafts_only && !request->is_draft())) continue;
    for (const Choice& choice : request->choices) count += choice.stage == Stage::running ? 1 : 0;
  }
  return count;
}

void Engine::State::end_early() {
  for (const auto& [key, request] : requests) {
    for (Choice& choice : request->choices) choice.update.reset();
    const Duration deadline = std::chrono::milliseconds(request->request.deadline_ms);
    std::optional<Finish> end;
    if (request->over && !request->wants_prompt_logprobs()) end = request->over;
    if (deadline.count() > 0 && now - request->submitted >= deadline) {
      end = Finish{.reason = FinishReason::deadline_exceeded};
    }
    if (request->cancelled) end = Finish{.reason = FinishReason::cancelled};
    if (!end) continue;
    for (Choice& choice : request->choices) {
      if (choice.stage != Stage::done) finish(*request, choice, *end);
    }
  }
}

StepPlan Engine::State::plan() {
  views.clear();
  scheduled.clear();
  shares.begin_step();
  for (const auto& [key, request] : requests) {
    const bool forks = request->forks_pending();
    for (Choice& choice : request->choices) {
      if (choice.stage != Stage::waiting && choice.stage != Stage::running) continue;
      scheduled.push_back({request.get(), &choice});
      views.push_back({.running = choice.stage == Stage::running,
                       .parked = request->parked,
                       .draft = request->is_draft(),
                       .priority = request->request.priority,
                       .arrival = choice.arrival,
                       .slots = forks ? request->request.choices : 1,
                       .length = request->length(choice),
                       .computed = choice.kv.length(),
                       .blocks = static_cast<uint32_t>(choice.kv.table().size()),
                       .exclusive_blocks = choice.kv.exclusive_blocks(),
                       .shared_tail = choice.kv.shared_tail()});
      SequenceView& view = views.back();
      if (options.prefix_caching) find_cached(*request, choice, view);
      if (waits_for_tier(*request, choice)) {
        views.pop_back();
        scheduled.pop_back();
        continue;
      }
      view.rows_max = options.decode_plan.rows_max(view.computed);
      const bool backlogged = !view.running || view.length - view.computed > 1;
      if (!view.parked) shares.want(request->request.tenant, backlogged);
    }
  }
  shares.settle();
  for (size_t i = 0; i < views.size(); ++i) {
    const FairShare::Account share = shares.of(scheduled[i].request->request.tenant);
    views[i].tenant = share.number;
    views[i].served = share.served;
  }
  choose_hints();
  return plan_step(views, {.batch_tokens = batch_tokens,
                           .sequences = options.sequences,
                           .blocks_free = cache->available(),
                           .block_tokens = options.block_tokens});
}

void Engine::State::preempt(const Scheduled& victim) {
  victim.choice->kv.reset();
  victim.choice->stage = Stage::waiting;
  victim.choice->asked_tier = false;
  if (victim.choice->drafts) victim.choice->drafts->forget_own_text();
  ++victim.request->preemptions;
  ++counters.preemptions;
}

void Engine::State::apply(const StepPlan& plan) {
  for (const uint32_t i : plan.preempt) preempt(scheduled[i]);
  for (const uint32_t i : plan.admit) {
    auto& [request, choice] = scheduled[i];
    choice->stage = Stage::running;
    leave_read(*request, *choice);
    if (options.prefix_caching) take_cached(*request, *choice, choice->cached_blocks);
    if (!request->admitted) request->admitted = now;
  }
}

void Engine::State::build_batch(const StepPlan& plan) {
  ids.clear();
  positions.clear();
  segments.clear();
  readings.clear();
  for (const PlannedRows& planned : plan.rows) add_rows(scheduled[planned.sequence], planned.rows);
}

void Engine::State::add_rows(const Scheduled& entry, uint32_t rows) {
  ActiveRequest& request = *entry.request;
  Choice& choice = *entry.choice;
  const auto first_row = static_cast<uint32_t>(ids.size());
  const uint32_t first = choice.kv.length();
  const uint32_t length = request.length(choice);
  const uint32_t hints = first + rows > length ? first + rows - length : 0;
  if (choice.drafts) choice.drafts->path.resize(hints);
  shares.charge(request.request.tenant, rows);
  const bool has_room = choice.kv.append(rows);
  OUTRIDER_CHECK(has_room, rows, cache->available());
  counters.rows += rows;
  segments.push_back({.block_table = choice.kv.table().data(),
                      .first_row = first_row,
                      .rows = rows,
                      .first_position = first});
  const bool scores = choice.index == 0 && request.wants_prompt_logprobs();
  for (uint32_t i = 0; i < rows; ++i) {
    const uint32_t position = first + i;
    ids.push_back(position < length ? request.token_at(choice, position)
                                    : choice.drafts->path[position - length].token);
    positions.push_back(static_cast<int32_t>(position));
    const uint32_t next = position + 1;
    if (scores && next < request.prompt_size() && next >= request.prompt_scored) {
      readings.push_back({first_row + i, &request, &choice, next});
    }
    if (next == length) readings.push_back({first_row + i, &request, &choice, 0, hints, position});
  }
}

void Engine::State::read_results() {
  for (size_t first = 0; first < readings.size();) {
    logit_rows.clear();
    size_t end = first;
    while (end < readings.size() &&
           logit_rows.size() + 1 + readings[end].hints <= transformer.logit_rows_max()) {
      const Reading& reading = readings[end++];
      for (uint32_t i = 0; i <= reading.hints; ++i) logit_rows.push_back(reading.row + i);
    }
    transformer.compute_logits(logit_rows);
    draws.clear();
    uint32_t row = 0;
    for (size_t i = first; i < end; ++i) {
      add_draws(readings[i], row);
      row += 1 + readings[i].hints;
    }
    fetch_results();
    draw_all();
    for (Draw& draw : draws) use(draw);
    first = end;
  }
}

void Engine::State::add_draws(const Reading& reading, uint32_t row) {
  ActiveRequest& request = *reading.request;
  if (reading.choice->stage == Stage::done) return;
  if (reading.choice->index == 0) report_prompt_start(request, *reading.choice);
  if (reading.scored > 0 || request.over || !request.forks_pending()) {
    draws.push_back({&request, reading.choice, reading.scored, reading.hints, row});
    return;
  }
  fork_choices(request);
  for (Choice& choice : request.choices) draws.push_back({&request, &choice, 0, 0, row});
}

/// Nobody looks at its logits but to draw from them, as a device can.
bool Engine::State::wants_token_only(const Draw& draw) const {
  const GenerationRequest& wanted = draw.request->request;
  return draw.scored == 0 && wanted.logprobs < 0 && wanted.draft == DraftKind::none &&
         !verifies_by_rejection(wanted) && is_plain(wanted.sampling) &&
         draw.request->forbidden(*draw.choice).empty();
}

/// Draws on the device what it can draw, as it draws the same, and brings the logits of the others.
void Engine::State::fetch_results() {
  const size_t drawn_max = transformer.samples() ? transformer.logit_rows_max() : 0;
  host_rows.clear();
  row_draws.clear();
  for (Draw& draw : draws) {
    if (draw.scored == 0 && draw.request->over) continue;
    if (row_draws.size() + draw.hints < drawn_max && wants_token_only(draw)) {
      draw.drawn_at = row_draws.size();
      for (uint32_t i = 0; i <= draw.hints; ++i) {
        row_draws.push_back({draw.seed(), draw.position(i),
                             draw.request->request.sampling.temperature, draw.row + i});
      }
      continue;
    }
    for (uint32_t row = draw.row; row <= draw.row + draw.hints; ++row) {
      if (host_rows.empty() || host_rows.back() < row) host_rows.push_back(row);
    }
  }
  const Transformer::Results results = transformer.read(host_rows, row_draws);
  const size_t vocabulary = model->config.vocab;
  for (Draw& draw : draws) {
    const size_t rows = size_t{1} + draw.hints;
    draw.logits = results.logits.subspan(draw.row * vocabulary, rows * vocabulary);
    if (draw.drawn_at) draw.chosen = results.chosen.subspan(*draw.drawn_at, rows);
  }
}

/// Draws look at their own row and request only, so threads may take them in any order.
void Engine::State::draw_all() {
  const size_t slices = std::min<size_t>(draws.size(), model->ops->threads());
  if (scratches.size() < slices) scratches.resize(slices);
  model->ops->parallel_for(slices, [&](size_t slice) {
    for (size_t i = slice; i < draws.size(); i += slices) compute(draws[i], scratches[slice]);
  });
}

/// The next token behind `ahead` hints that came true. For the exact method a hint plays no part.
Result<int32_t> Engine::State::choose_token(Draw& draw, const SampleRow& row, size_t ahead,
                                            SampleScratch& scratch) const {
  if (draw.request->request.draft == DraftKind::drawn) {
    DraftedToken drafted;
    OUTRIDER_ASSIGN(drafted, draft_token(row, scratch));
    draw.drawn_from.push_back(std::move(drafted.drawn_from));
    return drafted.id;
  }
  if (ahead < draw.hints && verifies_by_rejection(draw.request->request)) {
    const HintTrie::Step& hint = draw.choice->drafts->path[ahead];
    if (hint.drawn_from) return sample_or_reject(row, hint.token, *hint.drawn_from, scratch);
  }
  return sample(row, scratch);
}

/// `alternatives` < 0: none is wanted.
Result<TokenOut> with_logprob(TokenOut token, std::span<const float> logits, int32_t alternatives,
                              SampleScratch& scratch) {
  if (alternatives < 0) return token;
  OUTRIDER_ASSIGN(token.logprob, token_logprob(logits, token.id, alternatives, scratch));
  return token;
}

/// The token of one of the draw's rows, `counts` being those of the output before it.
Result<TokenOut> Engine::State::compute_one(Draw& draw, size_t row, const TokenCounts& counts,
                                            SampleScratch& scratch) const {
  const ActiveRequest& request = *draw.request;
  const GenerationRequest& wanted = request.request;
  const size_t vocabulary = model->config.vocab;
  const std::span<const float> logits = draw.logits.subspan(row * vocabulary, vocabulary);
  TokenOut out;
  if (draw.scored > 0) {
    out.id = wanted.prompt[draw.scored];
    return with_logprob(std::move(out), logits, wanted.prompt_logprobs, scratch);
  }
  if (!draw.chosen.empty()) {
    out.id = draw.chosen[row];
    if (out.id < 0) return logit_not_finite();
    return out;
  }
  const SampleRow sampled = {.logits = logits,
                             .params = wanted.sampling,
                             .seed = draw.seed(),
                             .position = draw.position(row),
                             .counts = &counts,
                             .forbidden = request.forbidden(*draw.choice, row)};
  OUTRIDER_ASSIGN(out.id, choose_token(draw, sampled, row, scratch));
  if (wanted.draft != DraftKind::same_noise) {
    return with_logprob(std::move(out), logits, wanted.logprobs, scratch);
  }
  OUTRIDER_ASSIGN(out.logprob, choice_shares(sampled, out.id, wanted.logprobs, scratch));
  return out;
}

void Engine::State::compute(Draw& draw, SampleScratch& scratch) const {
  if (draw.scored == 0 && draw.request->over) return;
  TokenCounts forked;
  const TokenCounts* counts = &draw.choice->counts;
  for (size_t row = 0; row <= draw.hints; ++row) {
    auto token = compute_one(draw, row, *counts, scratch);
    if (!token) {
      draw.error = token.error();
      return;
    }
    const int32_t id = token->id;
    draw.tokens.push_back(std::move(token).value());
    if (row == draw.hints || id != draw.choice->drafts->path[row].token) return;
    if (!TokenCounts::needed(draw.request->request.sampling)) continue;
    if (row == 0) forked = *counts;
    forked.add_output(id);
    counts = &forked;
  }
}

void Engine::State::use(Draw& draw) {
  ActiveRequest& request = *draw.request;
  Choice& choice = *draw.choice;
  if (choice.stage == Stage::done) return;
  if (draw.scored > 0) return use_score(draw);
  if (request.over) {
    finish(request, choice, *request.over);
    for (Choice& other : request.choices) {
      if (other.stage == Stage::dormant) finish(request, other, *request.over);
    }
    return;
  }
  if (!request.first_token) request.first_token = now;
  const size_t drawn = draw.tokens.size();
  if (draw.hints > 0) draft_control.learn(drawn);
  std::optional<Finish> end;
  size_t count = 0;  // of what was drawn, up to the end
  if (!draw.tokens.empty()) {
    ChoiceUpdate& update = update_of(request, choice);
    while (count < draw.tokens.size() && !end) {
      end = request.commit(choice, draw.tokens[count++].id);
    }
    draw.tokens.erase(draw.tokens.begin() + static_cast<long>(count), draw.tokens.end());
    update.tokens = std::move(draw.tokens);  // a choice has one draw a step
    update.drawn_from = std::move(draw.drawn_from);
    counters.generated_tokens += count;
  }
  if (draw.hints > 0) {
    count_hints(request, choice, drawn, count);
    // Hints that did not come true, and what came after the end.
    choice.kv.crop(std::min(choice.kv.length(), request.length(choice) - 1));
    publish(request, choice);
  }
  if (end) {
    finish(request, choice, *end);
  } else if (draw.error) {
    finish(request, choice, {.reason = FinishReason::failed}, draw.error->message);
  }
}

void Engine::State::use_score(Draw& draw) {
  ActiveRequest& request = *draw.request;
  if (draw.error) {
    const Finish failed{.reason = FinishReason::failed};
    for (Choice& choice : request.choices) finish(request, choice, failed, draw.error->message);
    return;
  }
  update_of(request, *draw.choice).prompt_tokens.push_back(std::move(draw.tokens.front()));
  request.prompt_scored = draw.scored + 1;
}

/// The first prompt token has no logprob; it is reported with whatever comes first.
void Engine::State::report_prompt_start(ActiveRequest& request, Choice& choice) {
  if (!request.wants_prompt_logprobs() || request.prompt_scored > 0) return;
  update_of(request, choice).prompt_tokens.push_back({request.request.prompt[0], std::nullopt});
  request.prompt_scored = 1;
}

/// All choices go on from the prompt that choice 0 has computed, as far as there are slots; the
/// others compute it again when their turn comes.
void Engine::State::fork_choices(ActiveRequest& request) {
  uint32_t slots = options.sequences - std::min(options.sequences, running(false));
  for (Choice& choice : request.choices) {
    if (choice.stage != Stage::dormant) continue;
    choice.stage = slots > 0 ? Stage::running : Stage::waiting;
    if (slots == 0) continue;
    choice.kv = request.choices[0].kv.fork();
    choice.chain = request.choices[0].chain;
    --slots;
  }
}

void Engine::State::forget_finished() {
  std::erase_if(requests, [](const auto& entry) { return entry.second->done(); });
}

}  // namespace outrider::model
