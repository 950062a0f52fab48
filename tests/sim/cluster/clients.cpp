#include "tests/sim/cluster/clients.hpp"

#include <algorithm>

#include "base/limits.hpp"
#include "tests/sim/cluster/answer.hpp"

namespace outrider::sim::cluster {
namespace {

using Level = schema::ClientStream::Level;
using Ending = schema::StreamDone::Outcome;

/// A session that fails so many tries in a row gives up, and each needs a mishap of its own.
constexpr uint32_t k_mishaps_max = limits::placement_attempts_max - 1;
/// Some answers last as long as the trouble.
constexpr uint32_t k_long = 6;
constexpr uint32_t k_parts_max = 3;
/// Between the tokens of a prompt: more than there are clients.
constexpr size_t k_prompt_stride = 64;
constexpr uint32_t k_tops_max = 5;
/// Of a prompt where blocks matter: some of them.
constexpr uint32_t k_blocks_tokens = 100;

std::string name_of(uint64_t session) {
  return "session " + std::to_string(session);
}

}  // namespace

void SeenStream::complain(const std::string& what) {
  report_.violation(name_of(session_) + ": " + what);
}

Level SeenStream::push(schema::StreamEvent event) {
  if (done) complain("an event after the terminal one");
  if (auto* last = std::get_if<schema::StreamDone>(&event)) {
    done = std::move(*last);
    return level;
  }
  const auto& tokens = std::get<schema::StreamTokens>(event);
  take_prompt(tokens);
  if (tokens.choice >= request_->choices) complain("a choice that was not asked for");
  std::vector<TokenOut>& seen = choices[tokens.choice];
  if (finishes.contains(tokens.choice)) complain("tokens after the choice's finish");
  if (tokens.first_index != seen.size()) complain("a gap or a repeat in the stream");
  seen.insert(seen.end(), tokens.tokens.begin(), tokens.tokens.end());
  if (tokens.finish) finishes[tokens.choice] = *tokens.finish;
  return level;
}

/// All of the prompt that is asked for comes before the output of the choice that it comes with.
void SeenStream::take_prompt(const schema::StreamTokens& tokens) {
  const bool is_wanted = tokens.choice == 0 && request_->prompt_logprobs >= 0;
  if (!is_wanted && !tokens.prompt_tokens.empty()) complain("prompt tokens for nobody");
  if (!is_wanted) return;
  prompt.insert(prompt.end(), tokens.prompt_tokens.begin(), tokens.prompt_tokens.end());
  const bool has_output = !tokens.tokens.empty() || tokens.finish;
  if (has_output && prompt.size() < request_->prompt.size()) complain("output before the prompt");
}

GenerationRequest Clients::draw_request() {
  GenerationRequest request;
  size_t prompt_tokens = 1 + random_.below(20);
  if (scenario_.has_long_prompts && random_.chance(0.3f)) {
    prompt_tokens += random_.below(k_parts_max * limits::prompt_part_tokens_max);
  }
  if (scenario_.has_stores || scenario_.has_lines) {
    if (!scenario_.is_tight) prompt_tokens += random_.below(k_blocks_tokens);
    begin_like_another(request);
    prompt_tokens = std::max(prompt_tokens, request.prompt.size() + 1);
    request.kv.stop_rule = static_cast<KvStopRule>(1 + random_.below(k_kv_stop_rules));
  }
  for (size_t i = request.prompt.size(); i < prompt_tokens; ++i) {
    request.prompt.push_back(static_cast<int32_t>(clients_.size() + k_prompt_stride * i));
  }
  request.stop.max_tokens = 1 + random_.below(40);
  const float long_ones = scenario_.has_lines ? 0.5f : 0.1f;
  if (!scenario_.is_tight && random_.chance(long_ones)) request.stop.max_tokens *= k_long;
  request.choices = random_.chance(0.3f) ? 2 + random_.below(3) : 1;
  request.sampling.seed = random_.next_u64();
  if (random_.chance(0.3f)) request.tenant = random_.chance(0.5f) ? "blue" : "green";
  if (random_.chance(0.3f)) request.logprobs = static_cast<int32_t>(random_.below(k_tops_max));
  if (random_.chance(0.3f)) {
    request.prompt_logprobs = static_cast<int32_t>(random_.below(k_tops_max));
    if (random_.chance(0.1f)) request.stop.max_tokens = 0;
  }
  if (random_.chance(0.15f)) request.speculation.method = SpeculationMethod::reject_sampling;
  if (random_.chance(0.4f) && request.stop.max_tokens > 0) draw_stops(request);
  return request;
}

/// Most of them: with all of its prompt, or some of it.
void Clients::begin_like_another(GenerationRequest& request) {
  if (clients_.empty() || random_.chance(0.2f)) return;
  const auto count = static_cast<uint32_t>(clients_.size());
  const GenerationRequest& other = clients_[random_.below(count)].request;
  const auto size = static_cast<uint32_t>(other.prompt.size());
  if (other.prompt.front() < 0) return;
  const uint32_t taken = random_.chance(0.5f) ? size : random_.below(size);
  request.prompt.assign(other.prompt.begin(), other.prompt.begin() + taken);
}

/// Each choice ends at its first token, at its last or between, by a token or by text that ends in
/// one and begins in the one before. Where attempts draw other tokens, by text.
void Clients::draw_stops(GenerationRequest& request) {
  const bool by_text = verifies_by_rejection(request) || random_.chance(0.5f);
  for (uint32_t choice = 0; choice < request.choices; ++choice) {
    const uint32_t last = request.stop.max_tokens - 1;
    const uint32_t dice = random_.below(4);
    const uint32_t at = dice == 0 ? 0 : dice == 1 ? last : random_.below(last + 1);
    Answer answer(request, choice, 0);
    int32_t before = 0;
    while (answer.length() < at) answer.commit(request, before = answer.draw(request, 0));
    const int32_t id = answer.draw(request, 0);
    if (!by_text) {
      request.stop.stop_token_ids.push_back(id);
    } else {
      const std::string text = (at == 0 ? "" : Answer::text_of(before)) + Answer::text_of(id);
      request.stop.stop_strings.push_back(text.substr(at == 0 ? 0 : 1, at == 0 ? 2 : 4));
    }
  }
}

void Clients::open(bool calm) {
  std::vector<const Slot*> desks;
  for (const Slot& slot : cluster_.slots()) {
    if (slot.desk) desks.push_back(&slot);
  }
  if (desks.empty()) return;
  const Slot& desk = *desks[random_.below(static_cast<uint32_t>(desks.size()))];
  GenerationRequest request = draw_request();
  if (calm) {
    request.tenant.clear();
    request.choices = 1;
  } else {
    if (random_.chance(0.05f)) request.deadline_ms = 1 + random_.below(5000);
    if (random_.chance(0.03f)) request.prompt[0] = -1;
  }
  Client& client = clients_.emplace_back();
  client.session = clients_.size();
  client.request = request;
  client.stream = std::make_shared<SeenStream>(report_, client.session,
                                               std::make_shared<GenerationRequest>(request));
  client.gateway = desk.process;
  client.is_calm = calm;
  report_.note("open " + name_of(client.session) + " at " + desk.name() + ", choices " +
               std::to_string(request.choices));
  cluster_.tell(desk, schema::OpenSession{client.session, k_model,
                                          std::make_shared<GenerationRequest>(std::move(request)),
                                          client.stream});
}

const Slot* Clients::desk_of(const Client& client) const {
  return client.stream->done ? nullptr : cluster_.slot_of(client.gateway);
}

void Clients::resume(Client& client) {
  if (client.stream->level == Level::full) client.stream->level = Level::flowing;
  if (const Slot* desk = desk_of(client)) {
    cluster_.tell(*desk, schema::ResumeSession{client.session});
  }
}

void Clients::bother() {
  if (clients_.empty()) return;
  Client& client = clients_[random_.below(static_cast<uint32_t>(clients_.size()))];
  const uint32_t dice = random_.below(100);
  if (dice < 15) {
    client.gave_up = true;
    if (const Slot* desk = desk_of(client)) {
      cluster_.tell(*desk, schema::CancelSession{client.session});
    }
  } else if (dice < 20) {
    client.gave_up = true;
    client.stream->level = Level::gone;
  } else if (dice < 60) {
    if (client.stream->level == Level::flowing) client.stream->level = Level::full;
  } else {
    resume(client);
  }
}

void Clients::read_on() {
  for (Client& client : clients_) resume(client);
}

void Clients::mishap() {
  for (Client& client : clients_) client.mishaps += client.stream->done ? 0 : 1;
}

void Clients::mishap_of(uint64_t session) {
  if (session != 0 && session <= clients_.size()) ++clients_[session - 1].mishaps;
}

void Clients::before_kill(ProcessId gateway) {
  for (Client& client : clients_) {
    if (client.gateway == gateway && !client.stream->done) client.lost_gateway = true;
  }
}

bool Clients::all_ended() const {
  return std::all_of(clients_.begin(), clients_.end(), [](const Client& client) {
    return client.lost_gateway || client.stream->done.has_value();
  });
}

bool Clients::may_be_over(uint64_t session) const {
  if (session == 0 || session > clients_.size()) return true;
  const Client& client = clients_[session - 1];
  return client.gave_up || client.lost_gateway || client.stream->done ||
         client.request.deadline_ms > 0 || !client.stream->finishes.empty();
}

void Clients::note_ends(const std::function<bool(ProcessId)>& has_target) {
  for (Client& client : clients_) {
    if (client.stream->done && !client.had_target) client.had_target = has_target(client.gateway);
  }
}

uint64_t Clients::one_that_waits() {
  std::vector<uint64_t> waiting;
  for (const Client& client : clients_) {
    if (!client.stream->done && !client.gave_up) waiting.push_back(client.session);
  }
  return waiting.empty() ? 0 : waiting[random_.below(static_cast<uint32_t>(waiting.size()))];
}

size_t Clients::done() const {
  return static_cast<size_t>(std::ranges::count_if(clients_, [](const Client& client) {
    return client.stream->done && client.stream->done->outcome == Ending::done;
  }));
}

uint64_t Clients::tokens() const {
  uint64_t count = 0;
  for (const Client& client : clients_) {
    for (const auto& [choice, seen] : client.stream->choices) count += seen.size();
  }
  return count;
}

void Clients::check() const {
  for (const Client& client : clients_) check(client);
}

void Clients::check(const Client& client) const {
  check_text(client);
  if (client.lost_gateway) return;
  if (!client.stream->done) {
    return report_.violation(name_of(client.session) + " never ends");
  }
  check_end(client);
}

/// Which of the models began: all the rest has to be of it, too.
uint64_t Clients::twist_of(const Client& client) const {
  if (!scenario_.is_mixed) return 0;
  const GenerationRequest& request = client.request;
  for (const auto& [choice, seen] : client.stream->choices) {
    if (seen.empty()) continue;
    const bool is_twisted =
        Answer::plain(seen[0].id) != Answer::plain(Answer(request, choice, 0).draw(request, 0));
    return is_twisted ? k_twist : 0;
  }
  const std::vector<TokenOut>& prompt = client.stream->prompt;
  const bool is_plain = prompt.size() < 2 || prompt[1] == Answer::prompt_token(request, 1, 0);
  return is_plain ? 0 : k_twist;
}

/// A prefix of what the request gives, and all of it with `done`.
void Clients::check_text(const Client& client) const {
  const uint64_t twist = twist_of(client);
  check_prompt(client, twist);
  for (uint32_t choice = 0; choice < client.request.choices; ++choice) {
    check_choice(client, choice, twist);
  }
}

void Clients::check_prompt(const Client& client, uint64_t twist) const {
  const std::vector<TokenOut>& prompt = client.stream->prompt;
  const GenerationRequest& request = client.request;
  if (prompt.size() > request.prompt.size()) {
    return report_.violation(name_of(client.session) + " got too many prompt tokens");
  }
  for (uint32_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] == Answer::prompt_token(request, i, twist)) continue;
    return report_.violation(name_of(client.session) + " got a wrong prompt token: index " +
                             std::to_string(i));
  }
  const bool is_done = client.stream->done && client.stream->done->outcome == Ending::done;
  if (is_done && request.prompt_logprobs >= 0 && prompt.size() < request.prompt.size()) {
    report_.violation(name_of(client.session) + " is done without all prompt tokens");
  }
}

/// Where each attempt draws its own tokens, those of an earlier one never come after a later one's.
void Clients::check_choice(const Client& client, uint32_t choice, uint64_t twist) const {
  const GenerationRequest& request = client.request;
  const SeenStream& stream = *client.stream;
  const std::string where = ": choice " + std::to_string(choice);
  Answer answer(request, choice, twist);
  const auto found = stream.choices.find(choice);
  uint32_t generation = 0;
  for (uint32_t i = 0; found != stream.choices.end() && i < found->second.size(); ++i) {
    const TokenOut& token = found->second[i];
    const uint32_t by = Answer::generation_of(token.id);
    const int32_t id = answer.draw(request, by);
    if (answer.finish() || by < generation || token != answer.told(request, id)) {
      return report_.violation(name_of(client.session) + " got a wrong token" + where + ", index " +
                               std::to_string(i));
    }
    answer.commit(request, id);
    generation = by;
  }
  const auto finish = stream.finishes.find(choice);
  if (finish != stream.finishes.end() && answer.finish() != finish->second) {
    report_.violation(name_of(client.session) + " got a wrong finish" + where);
  }
  const bool is_done = stream.done && stream.done->outcome == Ending::done;
  if (is_done && (finish == stream.finishes.end() || !answer.finish())) {
    report_.violation(name_of(client.session) + " is done without all tokens" + where);
  }
}

void Clients::check_end(const Client& client) const {
  const schema::StreamDone& done = *client.stream->done;
  if (done.outcome == Ending::done) return;
  if (!done.error) return report_.violation(name_of(client.session) + " failed without a reason");
  if (may_end_with(client, done.error->code)) return;
  report_.violation(name_of(client.session) + (client.is_calm ? ", a calm one," : "") +
                    " ends with " + std::string(to_string(done.error->code)) + ": " +
                    done.error->message + " (mishaps " + std::to_string(client.mishaps) + ")");
}

bool Clients::may_end_with(const Client& client, ErrorCode code) const {
  switch (code) {
    case ErrorCode::cancelled:
      return client.gave_up;
    case ErrorCode::deadline_exceeded:
      return client.request.deadline_ms > 0;
    case ErrorCode::invalid_argument:
      return client.request.prompt[0] < 0;
    case ErrorCode::overloaded:
      return scenario_.is_tight && !client.is_calm && client.stream->choices.empty();
    case ErrorCode::unavailable:
      if (client.is_calm) return false;
      if (twist_of(client) != 0) return true;  // There is one such target at most.
      if (scenario_.is_tight) return true;     // Being turned away costs tries as well.
      if (client.mishaps >= k_mishaps_max) return true;
      return !scenario_.has_rock && (scenario_.is_hostile || !client.had_target.value_or(false));
    default:
      return false;
  }
}

}  // namespace outrider::sim::cluster
