#include <utility>

#include "gateway/http_service.hpp"
#include "gateway/json_values.hpp"
#include "gateway/logprobs_json.hpp"
#include "gateway/request_fields.hpp"
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
  const bool ready = serving.phase() == Phase::ready;
  Json body = Json::object();
  body["status"] = to_string(serving.phase());
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
  return entry;
}

Reply models_page(const Serving& serving) {
  Json body = Json::object();
  body["object"] = "list";
  body["data"] = Json::array();
  if (serving.served()) body["data"].push_back(model_entry(*serving.served()));
  return json_reply(body);
}

Reply metrics_page(const Serving& serving) {
  if (serving.parts().before_metrics) serving.parts().before_metrics();
  Reply reply;
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  reply.body = serving.metrics().render();
  return reply;
}

Result<bool> flag_or(const Json& body, const char* name, bool fallback) {
  const Json value = body.value(name, Json());
  if (value.is_null()) return fallback;
  return read_bool(value, name);
}

Result<Json> read_object(const std::string& body, const ServedModel& served, JsonBudget& budget) {
  auto json = parse_json_body(body, budget);
  if (!json) return json.error();
  if (!json->is_object()) {
    return fail(ErrorCode::invalid_argument,
                "the body must be a JSON object, not " + describe(*json));
  }
  const Json model = json->value("model", Json());
  if (!model.is_null() && model != served.name) {
    return fail(ErrorCode::not_found, "this model is not served here", "model");
  }
  return json;
}

Result<Json> tokenize(const std::string& text, const ServedModel& served, UnixTime now) {
  JsonBudget budget;
  auto body = read_object(text, served, budget);
  if (!body) return body.error();
  const bool chat = body->contains("messages");
  auto special = flag_or(*body, "add_special_tokens", !chat);
  if (!special) return special.error();
  auto generation = flag_or(*body, "add_generation_prompt", true);
  if (!generation) return generation.error();
  auto strings = flag_or(*body, "return_token_strs", false);
  if (!strings) return strings.error();
  Result<std::vector<int32_t>> tokens = invalid("prompt", "prompt or messages is required");
  if (chat) {
    auto messages = normalise_messages((*body)["messages"], budget);
    if (!messages) return messages.error();
    const Json tools = body->value("tools", Json());
    if (!tools.is_null()) OUTRIDER_TRY(check_tools(tools));
    tokens = chat_prompt_tokens({*messages, tools, Json(), *generation, *special}, served, now);
  } else if (body->contains("prompt")) {
    const Json& prompt = (*body)["prompt"];
    if (!prompt.is_string()) return wrong_type("prompt", "a string", prompt);
    tokens = encode(prompt.get_ref<const std::string&>(), *special, served, "prompt");
  }
  if (!tokens) return tokens.error();
  Json out = Json::object();
  out["count"] = tokens->size();
  out["max_model_len"] = served.context_tokens;
  out["tokens"] = *tokens;
  out["token_strs"] = nullptr;
  if (*strings) {
    out["token_strs"] = Json::array();
    for (const int32_t id : *tokens) {
      out["token_strs"].push_back(token_text(*served.text.tokenizer, id));
    }
  }
  return out;
}

Result<Json> detokenize(const std::string& text, const ServedModel& served) {
  JsonBudget budget;
  auto body = read_object(text, served, budget);
  if (!body) return body.error();
  auto tokens = read_token_ids(body->value("tokens", Json()), "tokens", text.size());
  if (!tokens) return tokens.error();
  OUTRIDER_TRY(check_token_ids(*tokens, "tokens", served));
  Json out = Json::object();
  out["prompt"] = decode(*tokens, served);
  return out;
}

Result<Reply> page_of(const Result<Json>& result) {
  if (!result) return result.error();
  return json_reply(*result);
}

}  // namespace

std::optional<Reply> get_page(const std::string& path, Serving& serving) {
  if (path == "/health" || path == "/ready") return phase_page(serving);
  if (path == "/live") return json_reply(Json::object({{"status", "live"}}));
  if (path == "/version") {
    return json_reply(Json::object({{"version", serving.parts().version}}));
  }
  if (path == "/metrics") return metrics_page(serving);
  if (path == "/v1/models") return models_page(serving);
  constexpr std::string_view k_one_model = "/v1/models/";
  if (path.starts_with(k_one_model) && serving.served() &&
      path.substr(k_one_model.size()) == serving.served()->name) {
    return json_reply(model_entry(*serving.served()));
  }
  if (path == "/cluster" && serving.parts().cluster_json) {
    Reply reply;
    reply.body = serving.parts().cluster_json();
    return reply;
  }
  return std::nullopt;
}

Result<Reply> tokenize_page(const std::string& body, const ServedModel& served, UnixTime now) {
  return page_of(tokenize(body, served, now));
}

Result<Reply> detokenize_page(const std::string& body, const ServedModel& served) {
  return page_of(detokenize(body, served));
}

}  // namespace outrider::gateway
