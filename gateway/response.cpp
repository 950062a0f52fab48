#include "gateway/response.hpp"

#include <utility>

namespace outrider::gateway {
namespace {

double ms(uint64_t us) {
  return static_cast<double>(us) / 1e3;  // times 1e-3 would have 17 digits
}

}  // namespace

ResponseWriter::ResponseWriter(const Generation& generation, std::string id, int64_t created_s)
    : generation_(generation),
      id_(std::move(id)),
      created_s_(created_s),
      choices_(generation.request().choices(),
               Choice{.detokenizer = {generation.served().text.tokenizer,
                                      request().parsed.generation.stop.skip_special_tokens}}),
      prompt_logprobs_(request().prompts.size()),
      prompt_written_(request().prompts.size()) {}

Json ResponseWriter::envelope(const char* object) {
  const auto& served = generation_.served();
  Json body = {{"id", id_},
               {"object", object},
               {"created", created_s_},
               {"model", served.name},
               {"system_fingerprint", served.fingerprint}};
  if (!std::exchange(seed_sent_, true)) body["seed"] = seed();
  return body;
}

Json ResponseWriter::seed() const {
  if (request().parsed.seed_is_negative) return static_cast<int64_t>(request().seed());
  return request().seed();
}

Json ResponseWriter::usage(bool final) const {
  const auto& totals = generation_.totals();
  Json out = {{"prompt_tokens", totals.prompt_tokens},
              {"completion_tokens", totals.completion_tokens},
              {"total_tokens", totals.prompt_tokens + totals.completion_tokens}};
  if (final) out["prompt_tokens_details"] = {{"cached_tokens", totals.timings.cached.all}};
  return out;
}

Json ResponseWriter::timings() const {
  const auto& totals = generation_.totals();
  return {{"queue_ms", ms(totals.timings.queue_us)},
          {"prefill_ms", ms(totals.timings.prefill_us)},
          {"decode_ms", ms(totals.timings.decode_us)},
          {"cached_tokens_device", totals.timings.cached.device()},
          {"cached_tokens_warm", totals.timings.cached.warm},
          {"cached_tokens_cold", totals.timings.cached.cold},
          {"cached_tokens_peer", totals.timings.cached.peer},
          {"draft_n", totals.timings.draft_tokens},
          {"draft_n_accepted", totals.timings.accepted_tokens},
          {"pins_refused_device", totals.timings.pins_refused},
          {"pins_refused_cold", totals.timings.pins_refused_cold},
          {"moves", totals.timings.moves}};
}

std::string ResponseWriter::event(const Json& body) const {
  return "data: " + to_text(body) + "\n\n";
}

std::string ResponseWriter::error_event(const std::string& error_body) {
  return "data: " + error_body + "\n\n";
}

Json ResponseWriter::prompt_ids(uint32_t prompt) const {
  return Json(request().prompts[prompt].prompt);
}

void ResponseWriter::set_finish(Json& choice, const std::optional<Finish>& finish) const {
  choice["finish_reason"] = nullptr;
  if (!finish) return;
  choice["finish_reason"] = std::string(to_string(finish->reason));
  choice["stop_reason"] = nullptr;
  const auto& stops = request().parsed.generation.stop;
  if (finish->stop_string >= 0) {
    choice["stop_reason"] = stops.stop_strings.at(static_cast<size_t>(finish->stop_string));
  } else if (std::ranges::find(stops.stop_token_ids, finish->stop_token) !=
             stops.stop_token_ids.end()) {
    choice["stop_reason"] = finish->stop_token;  // EOS stays null, as in vLLM
  }
}

Json ResponseWriter::logprobs(uint32_t choice, std::span<const TokenOut> tokens, bool with_prompt) {
  if (request().parsed.generation.logprobs < 0) return nullptr;
  if (chat()) return chat_logprobs(tokenizer(), tokens);
  auto& state = choices_[choice];
  std::vector<TokenOut> all;
  std::vector<uint64_t> offsets;
  if (with_prompt) {
    all = generation_.prompt_tokens()[prompt_of(choice)];
    offsets = prompt_offsets(prompt_of(choice));
    state.characters = count_characters(request().echo_texts[prompt_of(choice)]);
  }
  for (const auto& token : tokens) {
    all.push_back(token);
    offsets.push_back(state.characters);
    // A character counts with the token that completes it.
    state.characters += count_characters(state.detokenizer.push(token.id));
  }
  return completion_logprobs(tokenizer(), all, offsets);
}

std::vector<uint64_t> ResponseWriter::prompt_offsets(uint32_t prompt) const {
  const std::string& echo = request().echo_texts[prompt];
  model::Detokenizer detokenizer(generation_.served().text.tokenizer, false);
  std::vector<uint64_t> offsets;
  uint64_t characters = 0;
  for (const auto& token : generation_.prompt_tokens()[prompt]) {
    // A special token that was put before the client's text is not in what it gets back.
    const bool added = offsets.empty() && tokenizer().is_special(token.id) &&
                       !echo.starts_with(tokenizer().token_bytes(token.id));
    offsets.push_back(characters);
    if (!added) characters += count_characters(detokenizer.push(token.id));
  }
  return offsets;
}

// -- streaming ------------------------------------------------------------------------------------

std::string ResponseWriter::opening() {
  std::string out;
  if (!chat()) return out;
  for (uint32_t i = 0; i < choices_.size(); ++i) {
    Json body = envelope("chat.completion.chunk");
    body["choices"] = {{{"index", i},
                        {"delta", {{"role", "assistant"}, {"content", ""}}},
                        {"logprobs", nullptr},
                        {"finish_reason", nullptr}}};
    if (request().parsed.return_token_ids && i == 0) body["prompt_token_ids"] = prompt_ids(0);
    if (request().parsed.continuous_usage_stats) body["usage"] = usage(false);
    out += event(body);
  }
  return out;
}

Json ResponseWriter::choice_chunk(const ChoiceDelta& delta) {
  const auto& parsed = request().parsed;
  const bool first = !std::exchange(choices_[delta.choice].opened, true);
  Json choice = {{"index", delta.choice}};
  const bool echoes = parsed.echo && first;
  if (chat()) {
    choice["delta"] = Json::object();
    if (!delta.text.empty()) choice["delta"]["content"] = delta.text;
  } else {
    choice["text"] =
        echoes ? request().echo_texts[prompt_of(delta.choice)] + delta.text : delta.text;
  }
  choice["logprobs"] = logprobs(delta.choice, delta.tokens, echoes);
  set_finish(choice, delta.finish);
  if (parsed.return_token_ids) {
    choice["token_ids"] = token_ids_json(delta.tokens);
    if (!chat() && first) choice["prompt_token_ids"] = prompt_ids(prompt_of(delta.choice));
  }
  return choice;
}

std::string ResponseWriter::chunk(const ChoiceDelta& delta) {
  const auto& parsed = request().parsed;
  const bool echoes = parsed.echo && !choices_[delta.choice].opened;
  const bool seen =
      !delta.text.empty() || delta.finish || echoes ||
      ((parsed.generation.logprobs >= 0 || parsed.return_token_ids) && !delta.tokens.empty());
  if (!seen) return {};
  Json choice = choice_chunk(delta);
  Json body = envelope(chat() ? "chat.completion.chunk" : "text_completion");
  body["choices"] = Json::array({std::move(choice)});
  if (parsed.continuous_usage_stats) body["usage"] = usage(false);
  return event(body);
}

std::string ResponseWriter::closing() {
  std::string out;
  if (request().parsed.include_usage) {
    Json body = envelope(chat() ? "chat.completion.chunk" : "text_completion");
    body["choices"] = Json::array();
    body["usage"] = usage(true);
    body["timings"] = timings();
    out += event(body);
  }
  return out + "data: [DONE]\n\n";
}

// -- not streaming --------------------------------------------------------------------------------

void ResponseWriter::collect(std::vector<ChoiceDelta> deltas) {
  const auto& parsed = request().parsed;
  write_prompt_logprobs();
  for (auto& delta : deltas) {
    auto& choice = choices_[delta.choice];
    choice.text += delta.text;
    if (delta.finish) choice.finish = delta.finish;
    if (parsed.return_token_ids) {
      for (const auto& token : delta.tokens) choice.ids.push_back(token.id);
    }
    if (parsed.generation.logprobs < 0) continue;
    std::move(delta.tokens.begin(), delta.tokens.end(), std::back_inserter(choice.tokens));
    if (!parsed.echo) write_logprobs(delta.choice);  // echo: once the prompt is there
  }
}

void ResponseWriter::write_logprobs(uint32_t choice) {
  auto& tokens = choices_[choice].tokens;
  choices_[choice].logprobs.append(logprobs(choice, tokens, request().parsed.echo));
  tokens.clear();
}

void ResponseWriter::write_prompt_logprobs() {
  if (request().parsed.generation.prompt_logprobs < 0) return;
  for (size_t prompt = 0; prompt < prompt_written_.size(); ++prompt) {
    const auto& tokens = generation_.prompt_tokens()[prompt];
    const auto rest = std::span(tokens).subspan(prompt_written_[prompt]);
    prompt_logprobs_[prompt].append({{"prompt_logprobs", prompt_logprobs_json(tokenizer(), rest)}});
    prompt_written_[prompt] = tokens.size();
  }
}

std::string ResponseWriter::whole_choice(uint32_t index) {
  const auto& parsed = request().parsed;
  auto& collected = choices_[index];
  Json choice = {{"index", index}};
  if (chat()) {
    choice["message"] = {{"role", "assistant"}, {"content", collected.text}};
  } else {
    choice["text"] =
        parsed.echo ? request().echo_texts[prompt_of(index)] + collected.text : collected.text;
  }
  set_finish(choice, collected.finish);
  if (parsed.return_token_ids) {
    choice["token_ids"] = std::move(collected.ids);
    if (!chat()) choice["prompt_token_ids"] = prompt_ids(prompt_of(index));
  }
  std::string text = to_text(choice);
  text.pop_back();
  if (parsed.generation.logprobs < 0) {
    text += ",\"logprobs\":null";
  } else {
    if (parsed.echo) write_logprobs(index);
    text += ",\"logprobs\":{" + collected.logprobs.members() + '}';
  }
  if (!chat() && parsed.generation.prompt_logprobs >= 0) {
    text += ',' + prompt_logprobs_[prompt_of(index)].members();
  }
  return text + '}';
}

std::string ResponseWriter::whole() {
  const auto& parsed = request().parsed;
  std::string text = to_text(envelope(chat() ? "chat.completion" : "text_completion"));
  text.back() = ',';
  text += "\"choices\":[";
  for (uint32_t i = 0; i < choices_.size(); ++i) text += (i > 0 ? "," : "") + whole_choice(i);
  text += "],";
  if (chat() && parsed.generation.prompt_logprobs >= 0) text += prompt_logprobs_[0].members() + ',';
  Json rest = {{"usage", usage(true)}, {"timings", timings()}};
  if (chat() && parsed.return_token_ids) rest["prompt_token_ids"] = prompt_ids(0);
  return text.append(to_text(rest), 1, std::string::npos);
}

}  // namespace outrider::gateway
