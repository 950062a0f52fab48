#include <kj/encoding.h>

#include <utility>

#include "base/limits.hpp"
#include "gateway/error_reply.hpp"
#include "gateway/http_service.hpp"
#include "gateway/json_values.hpp"
#include "gateway/logprobs_json.hpp"
#include "gateway/request_parser.hpp"
#include "gateway/text.hpp"

namespace outrider::gateway {
namespace {

Reply json_reply(const Json& body, int status = 200) {
  Reply reply;
  reply.status = status;
  reply.body = to_text(body);
  if (status == 503) reply.retry_after_s = 1;
  return reply;
}

Reply phase_page(const Serving& serving) {
  const auto& has_target = serving.parts().has_target;
  const bool waits = serving.phase() == Phase::ready && has_target && !has_target();
  const bool ready = serving.phase() == Phase::ready && !waits;
  Json body = Json::object();
  const bool loads = serving.phase() == Phase::loading;
  body["status"] = waits   ? "no target"
                   : loads ? serving.parts().not_ready.status
                           : to_string(serving.phase());
  return json_reply(body, ready ? 200 : 503);
}

Json model_entry(const ServedModel& served) {
  Json entry = Json::object();
  entry["id"] = served.name;
  entry["object"] = "model";
  entry["created"] = served.created_s;
  entry["owned_by"] = "outrider";
  entry["root"] = served.name;
  entry["parent"] = nullptr;
  entry["max_model_len"] = served.context_tokens;
  entry["meta"] = {{"n_vocab", served.text.tokenizer->size()}};  // as llama.cpp says it
  return entry;
}

Reply models_page(const Serving& serving) {
  Json body = Json::object();
  body["object"] = "list";
  body["data"] = Json::array();
  for (const auto& served : serving.served()) body["data"].push_back(model_entry(*served));
  return json_reply(body);
}

/// Also what there is to say of a model that is not there: OpenAI's words, to the byte.
Reply model_page(const std::string& escaped, const Serving& serving) {
  const kj::String decoded = kj::decodeUriComponent(kj::arrayPtr(escaped.data(), escaped.size()));
  const std::string name(decoded.begin(), decoded.size());
  const auto served = find_served(serving.served(), name);
  if (served && !name.empty()) return json_reply(model_entry(**served));
  return reply_of({.status = 404,
                   .type = "invalid_request_error",
                   .message = "The model '" + name + "' does not exist",
                   .param = "model",
                   .code = "model_not_found"});
}

Reply metrics_page(const Serving& serving, const Viewer& viewer) {
  if (serving.parts().before_metrics) serving.parts().before_metrics();
  Reply reply;
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  reply.body = visible_metrics(serving.metrics().render(), viewer);
  return reply;
}

Result<Json> read_object(const std::string& body, JsonBudget& budget) {
  auto json = parse_json_body(body, budget);
  if (!json || json->is_object()) return json;
  return fail(ErrorCode::invalid_argument,
              "the body must be a JSON object, not " + describe(*json));
}

Result<std::shared_ptr<const ServedModel>> served_for(const Json& body,
                                                      const ServedModels& models) {
  std::string name;
  if (const auto model = body.find("model"); model != body.end() && !model->is_null()) {
    OUTRIDER_ASSIGN(name, read_text(*model, "model", {1, limits::name_bytes_max}));
  }
  return find_served(models, name);
}

/// The tokens that a chat or completions request with these fields would have as its prompt.
Result<Json> tokenize(const std::string& text, const ServedModels& models, UnixTime now) {
  JsonBudget budget;
  auto body = read_object(text, budget);
  if (!body) return body.error();
  const auto found = served_for(*body, models);
  if (!found) return found.error();
  const ServedModel& served = **found;
  bool strings = false;
  const Json wants_strings = body->value("return_token_strs", Json());
  if (!wants_strings.is_null()) {
    OUTRIDER_TRY(bool_into(wants_strings, "return_token_strs", strings));
  }
  const bool chat = body->contains("messages");
  auto parsed = parse_request(chat ? RequestKind::chat : RequestKind::completion, *body, budget);
  if (!parsed) return parsed.error();
  const auto* prompt = chat ? nullptr : std::get_if<std::string>(&parsed->prompts[0]);
  if (!chat && (!prompt || parsed->prompts.size() > 1)) {
    return invalid("prompt", "prompt must be a string here");
  }
  auto tokens = chat ? chat_prompt_tokens(*parsed, served, now)
                     : encode(*prompt, parsed->add_special_tokens.value_or(true), served, "prompt");
  if (!tokens) return tokens.error();
  Json out = Json::object();
  out["count"] = tokens->size();
  out["max_model_len"] = served.context_tokens;
  out["tokens"] = *tokens;
  out["token_strs"] = nullptr;
  if (strings) {
    out["token_strs"] = Json::array();
    for (const int32_t id : *tokens) {
      out["token_strs"].push_back(token_text(*served.text.tokenizer, id));
    }
  }
  return out;
}

Result<Json> detokenize(const std::string& text, const ServedModels& models) {
  JsonBudget budget;
  auto body = read_object(text, budget);
  if (!body) return body.error();
  const auto served = served_for(*body, models);
  if (!served) return served.error();
  auto tokens = read_token_ids(body->value("tokens", Json()), "tokens", text.size());
  if (!tokens) return tokens.error();
  OUTRIDER_TRY(check_token_ids(*tokens, "tokens", **served));
  Json out = Json::object();
  out["prompt"] = decode(*tokens, **served);
  return out;
}

Result<Reply> page_of(const Result<Json>& result) {
  if (!result) return result.error();
  return json_reply(*result);
}

}  // namespace

std::optional<Reply> get_page(const std::string& path, Serving& serving, const Viewer& viewer) {
  if (path == "/health" || path == "/ready") return phase_page(serving);
  if (path == "/live") return json_reply(Json::object({{"status", "live"}}));
  if (path == "/version") {
    return json_reply(Json::object({{"version", serving.parts().version}}));
  }
  if (path == "/metrics") return metrics_page(serving, viewer);
  if (path == "/v1/models") return models_page(serving);
  constexpr std::string_view k_one_model = "/v1/models/";
  if (path.starts_with(k_one_model)) return model_page(path.substr(k_one_model.size()), serving);
  if (path == "/cluster" && serving.parts().cluster_json) {
    Reply reply;
    reply.body = serving.parts().cluster_json(viewer);
    return reply;
  }
  return std::nullopt;
}

Result<Reply> tokenize_page(const std::string& body, const ServedModels& models, UnixTime now) {
  return page_of(tokenize(body, models, now));
}

Reply cache_reset_page(const CacheResetDone& done) {
  Json body = Json::object();
  body["blocks"] = done.blocks;
  body["blocks_in_use"] = done.blocks_in_use;
  if (done.cold_blocks) body["cold_blocks"] = *done.cold_blocks;
  return json_reply(body);
}

Result<Reply> detokenize_page(const std::string& body, const ServedModels& models) {
  return page_of(detokenize(body, models));
}

}  // namespace outrider::gateway
