#include "gateway/rpc_convert.hpp"

#include <map>
#include <utility>

#include "base/limits.hpp"
#include "base/utf8.hpp"

namespace outrider::gateway {
namespace {

/// Collects fields; the first bad one stops it.
class Fields {
 public:
  explicit Fields(JsonBudget& budget) : budget_(budget) {}

  template <class T>
  void add(const char* name, T value, T fallback) {
    if (value != fallback) body_[name] = value;
  }

  void add_text(const char* name, capnp::Text::Reader text) {
    if (text.size() > 0) body_[name] = checked(name, text);
  }

  /// A value that HTTP writes as JSON; a word that does not begin as an object stands for itself.
  void add_json(const char* name, capnp::Text::Reader text, bool bare_word = false) {
    if (text.size() == 0) return;
    auto parsed = parse_json_body({text.begin(), text.size()}, budget_, name);
    if (parsed) {
      body_[name] = std::move(*parsed);
    } else if (bare_word && text[0] != '{') {
      body_[name] = checked(name, text);
    } else {
      refuse(name, parsed.error().message);
    }
  }

  /// Lists are bounded before they are walked: a few bytes may claim a million empty structs.
  bool fits(const char* name, size_t size, size_t size_max) {
    if (size <= size_max) return true;
    wrong(name,
          "has " + std::to_string(size) + " entries, the limit is " + std::to_string(size_max));
    return false;
  }

  void add_ids(const char* name, capnp::List<int32_t>::Reader list, size_t size_max) {
    if (list.size() == 0 || !fits(name, list.size(), size_max)) return;
    body_[name] = ids_json(list);
  }

  void add_texts(const char* name, capnp::List<capnp::Text>::Reader list, size_t size_max) {
    if (list.size() == 0 || !fits(name, list.size(), size_max)) return;
    Json values = Json::array();
    for (auto text : list) values.push_back(checked(name, text));
    body_[name] = std::move(values);
  }

  static Json ids_json(capnp::List<int32_t>::Reader list) {
    Json ids = Json::array();
    for (const int32_t id : list) ids.push_back(id);
    return ids;
  }

  std::string checked(const char* name, capnp::Text::Reader text) {
    std::string copy(text.begin(), text.size());
    if (!utf8_valid(copy)) wrong(name, "is not valid UTF-8");
    return copy;
  }

  void wrong(const std::string& name, const std::string& what) { refuse(name, name + ": " + what); }

  /// Says that a field which asks for something is for the other kind of request.
  void only_for(const char* kind, const char* name, bool given) {
    if (given) wrong(name, std::string("is for ") + kind + " only");
  }

  void set(const char* name, Json value) { body_[name] = std::move(value); }

  Result<Json> done() {
    if (error_) return *error_;
    return std::move(body_);
  }

 private:
  void refuse(const std::string& name, std::string message) {
    if (!error_) error_ = fail(ErrorCode::invalid_argument, std::move(message), name);
  }

  JsonBudget& budget_;
  Json body_ = Json::object();
  std::optional<Error> error_;
};

void add_prompt(rpc::GenerateRequest::Reader r, Fields& fields) {
  const auto prompt = r.getPrompt();
  switch (prompt.which()) {
    case rpc::GenerateRequest::Prompt::NONE:
      return;
    case rpc::GenerateRequest::Prompt::TEXT:
      return fields.set("prompt", fields.checked("prompt", prompt.getText()));
    case rpc::GenerateRequest::Prompt::TOKENS:
      return fields.add_ids("prompt", prompt.getTokens(), limits::http_body_bytes_max);
    case rpc::GenerateRequest::Prompt::TEXTS:
      return fields.add_texts("prompt", prompt.getTexts(), limits::prompts_max);
    case rpc::GenerateRequest::Prompt::TOKEN_LISTS: {
      if (!fields.fits("prompt", prompt.getTokenLists().size(), limits::prompts_max)) return;
      Json lists = Json::array();
      for (auto list : prompt.getTokenLists()) lists.push_back(Fields::ids_json(list));
      return fields.set("prompt", std::move(lists));
    }
  }
  fields.wrong("prompt", "is of a kind that this server does not know");
}

void add_sampling(rpc::GenerateRequest::Reader r, Fields& f) {
  f.add<int64_t>("max_tokens", r.getMaxTokens(), -1);
  f.add<int64_t>("max_completion_tokens", r.getMaxCompletionTokens(), -1);
  f.add<int64_t>("min_tokens", r.getMinTokens(), 0);
  f.add("temperature", r.getTemperature(), 1.0f);
  f.add("top_p", r.getTopP(), 1.0f);
  f.add("top_k", r.getTopK(), 0);
  f.add("min_p", r.getMinP(), 0.0f);
  f.add("repetition_penalty", r.getRepetitionPenalty(), 1.0f);
  f.add("presence_penalty", r.getPresencePenalty(), 0.0f);
  f.add("frequency_penalty", r.getFrequencyPenalty(), 0.0f);
  f.add("n", r.getN(), 1);
  f.add("best_of", r.getBestOf(), 0);
  f.add_texts("stop", r.getStop(), limits::stop_strings_max);
  f.add_ids("stop_token_ids", r.getStopTokenIds(), limits::stop_token_ids_max);
  f.add("include_stop_str_in_output", r.getIncludeStopStrInOutput(), false);
  f.add("ignore_eos", r.getIgnoreEos(), false);
  f.add("skip_special_tokens", r.getSkipSpecialTokens(), true);
  f.add("prompt_logprobs", r.getPromptLogprobs(), -1);
  if (r.getSeed().isValue()) f.set("seed", r.getSeed().getValue());
  const size_t biased = r.getLogitBias().size();
  if (biased == 0 || !f.fits("logit_bias", biased, limits::logit_bias_entries_max)) return;
  Json bias = Json::object();
  std::map<int32_t, float> unique;  // one object key each: cheap to build from a hostile list
  for (auto entry : r.getLogitBias()) {
    if (unique.emplace(entry.getId(), entry.getBias()).second) continue;
    return f.wrong("logit_bias", "has the token id " + std::to_string(entry.getId()) + " twice");
  }
  for (const auto& [id, value] : unique) bias[std::to_string(id)] = value;
  f.set("logit_bias", std::move(bias));
}

/// What the other kind of request would have read must not go by in silence.
void check_kind(rpc::GenerateRequest::Reader r, Fields& f) {
  if (request_kind(r) == RequestKind::chat) {
    f.only_for("completions", "suffix", r.getSuffix().size() > 0);
    f.only_for("completions", "best_of", r.getBestOf() != 0);
    f.only_for("completions", "prompt", !r.getPrompt().isNone());
    return;
  }
  f.only_for("chats", "tools", r.getTools().size() > 0);
  f.only_for("chats", "tool_choice", r.getToolChoice().size() > 0);
  f.only_for("chats", "chat_template_kwargs", r.getChatTemplateKwargs().size() > 0);
  f.only_for("chats", "add_generation_prompt", !r.getAddGenerationPrompt());
  f.only_for("chats", "top_logprobs", r.getTopLogprobs() != -1);
}

void add_logprobs(rpc::GenerateRequest::Reader r, Fields& f) {
  if (request_kind(r) == RequestKind::completion) {
    f.add("logprobs", r.getLogprobs(), -1);
    return;
  }
  const int32_t top = r.getTopLogprobs() != -1 ? r.getTopLogprobs() : r.getLogprobs();
  if (top == -1) return;
  f.set("logprobs", true);
  f.set("top_logprobs", top);
}

void write_token(const TokenOut& token, const model::Tokenizer& tokenizer,
                 rpc::Token::Builder out) {
  const auto bytes = [&](int32_t id) {
    const std::string_view text = tokenizer.token_bytes(id);
    return capnp::Data::Reader(reinterpret_cast<const kj::byte*>(text.data()), text.size());
  };
  out.setId(token.id);
  out.setBytes(bytes(token.id));
  if (!token.logprob) return;
  out.setHasLogprob(true);
  out.setLogprob(token.logprob->logprob);
  out.setRank(token.logprob->rank);
  auto top = out.initTop(static_cast<capnp::uint>(token.logprob->top.size()));
  capnp::uint i = 0;
  for (const auto& [id, logprob] : token.logprob->top) {
    top[i].setId(id);
    top[i].setLogprob(logprob);
    top[i++].setBytes(bytes(id));
  }
}

void write_tokens(const std::vector<TokenOut>& tokens, const Generation& generation,
                  capnp::List<rpc::Token>::Builder out) {
  for (capnp::uint i = 0; i < tokens.size(); ++i) {
    write_token(tokens[i], *generation.served().text.tokenizer, out[i]);
  }
}

}  // namespace

capnp::Text::Reader as_capnp(const std::string& text) {
  return {text.c_str(), text.size()};
}

RequestKind request_kind(rpc::GenerateRequest::Reader request) {
  return request.getMessages().size() > 0 ? RequestKind::chat : RequestKind::completion;
}

std::optional<bool> flag_of(rpc::Flag flag) {
  if (flag == rpc::Flag::YES) return true;
  if (flag == rpc::Flag::NO) return false;
  return std::nullopt;
}

Result<Json> messages_json(capnp::List<rpc::Message>::Reader messages, JsonBudget& budget) {
  Fields bound(budget);
  if (!bound.fits("messages", messages.size(), limits::messages_max)) return bound.done();
  Json out = Json::array();
  for (auto message : messages) {
    Fields f(budget);
    f.add_text("role", message.getRole());
    f.set("content", f.checked("messages", message.getContent()));
    f.add_text("name", message.getName());
    f.add_text("tool_call_id", message.getToolCallId());
    f.add_json("tool_calls", message.getToolCalls());
    auto done = f.done();
    if (!done) return done.error();
    out.push_back(std::move(*done));
  }
  return out;
}

Result<Json> request_json(rpc::GenerateRequest::Reader r, JsonBudget& budget) {
  Fields f(budget);
  f.add_text("model", r.getModel());
  if (r.getMessages().size() > 0) {
    auto messages = messages_json(r.getMessages(), budget);
    if (!messages) return messages.error();
    f.set("messages", std::move(*messages));
  }
  check_kind(r, f);
  add_prompt(r, f);
  f.add_json("tools", r.getTools());
  f.add_json("tool_choice", r.getToolChoice(), true);
  f.add("add_generation_prompt", r.getAddGenerationPrompt(), true);
  f.add_json("chat_template_kwargs", r.getChatTemplateKwargs());
  if (const auto flag = flag_of(r.getAddSpecialTokens())) f.set("add_special_tokens", *flag);
  add_sampling(r, f);
  add_logprobs(r, f);
  f.add("echo", r.getEcho(), false);
  f.add("return_token_ids", r.getReturnTokenIds(), false);
  f.add_text("suffix", r.getSuffix());
  f.add_json("response_format", r.getResponseFormat());
  f.add_text("user", r.getUser());
  f.add("priority", r.getPriority(), 0);
  f.add_text("cache_salt", r.getCacheSalt());
  f.add<int64_t>("deadline_ms", r.getDeadlineMs(), 0);
  f.add_json("speculation", r.getSpeculation(), true);
  f.add_json("kv", r.getKv());
  return f.done();
}

void write_chunk(const ChoiceDelta& delta, const Generation& generation,
                 rpc::TokenChunk::Builder out) {
  out.setChoice(delta.choice);
  out.setText(as_capnp(delta.text));
  write_tokens(delta.tokens, generation,
               out.initTokens(static_cast<capnp::uint>(delta.tokens.size())));
  if (!delta.finish) return;
  out.setFinishReason(delta.finish->reason == FinishReason::stop ? rpc::FinishReason::STOP
                                                                 : rpc::FinishReason::LENGTH);
  out.setStopToken(delta.finish->stop_token);
  if (delta.finish->stop_string < 0) return;
  const auto& stops = generation.request().parsed.generation.stop.stop_strings;
  out.setStopString(as_capnp(stops.at(static_cast<size_t>(delta.finish->stop_string))));
}

void write_result(const Generation& generation, const std::string& id,
                  rpc::GenerateResult::Builder out) {
  const auto& totals = generation.totals();
  out.setId(as_capnp(id));
  out.setModel(as_capnp(generation.served().name));
  out.setSeed(generation.request().seed());
  out.setSystemFingerprint(as_capnp(generation.served().fingerprint));
  auto usage = out.initUsage();
  usage.setPromptTokens(totals.prompt_tokens);
  usage.setCompletionTokens(totals.completion_tokens);
  usage.setCachedTokens(totals.timings.cached.all);
  auto timings = out.initTimings();
  timings.setQueueMs(static_cast<double>(totals.timings.queue_us) * 1e-3);
  timings.setPrefillMs(static_cast<double>(totals.timings.prefill_us) * 1e-3);
  timings.setDecodeMs(static_cast<double>(totals.timings.decode_us) * 1e-3);
  timings.setCachedTokensDevice(totals.timings.cached.device());
  timings.setCachedTokensWarm(totals.timings.cached.warm);
  timings.setCachedTokensCold(totals.timings.cached.cold);
  timings.setCachedTokensPeer(totals.timings.cached.peer);
  timings.setDraftN(totals.timings.draft_tokens);
  timings.setDraftNAccepted(totals.timings.accepted_tokens);
  timings.setPinsRefusedDevice(totals.timings.pins_refused);
  timings.setPinsRefusedCold(totals.timings.pins_refused_cold);
  timings.setMoves(totals.timings.moves);
}

void write_prompts(const Generation& generation, rpc::GenerateResult::Builder out) {
  const auto& prompts = generation.prompt_tokens();
  auto list = out.initPrompts(static_cast<capnp::uint>(prompts.size()));
  for (capnp::uint i = 0; i < prompts.size(); ++i) {
    write_tokens(prompts[i], generation,
                 list[i].initTokens(static_cast<capnp::uint>(prompts[i].size())));
  }
}

}  // namespace outrider::gateway
