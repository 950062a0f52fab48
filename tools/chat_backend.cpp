#include "tools/chat_backend.hpp"

#include "base/metrics.hpp"
#include "base/sampling_ranges.hpp"
#include "model/generator.hpp"
#include "tools/engine_options.hpp"
#include "tools/http_client.hpp"
#include "tools/kv_plan.hpp"
#include "tools/server_json.hpp"

namespace outrider::tools {
namespace {

class LocalChat final : public ChatBackend {
 public:
  explicit LocalChat(std::unique_ptr<model::Generator> generator)
      : generator_(std::move(generator)) {}

  std::string description() const override {
    return generator_->model().name + " on " + std::string(generator_->model().ops->description());
  }

  Result<ChatStats> answer(const nlohmann::ordered_json& messages, const SamplingFlags& sampling,
                           const std::function<void(std::string_view)>& on_text,
                           const std::function<bool()>& stopped) override {
    auto request = generator_->chat_request(messages);
    if (!request) return request.error();
    sampling.apply(*request);
    if (const auto fits = fit_context(*request); !fits) return fits.error();
    auto results = generator_->generate(
        std::move(*request),
        [&](std::string_view text, std::span<const TokenOut>) {
          on_text(text);
          return true;
        },
        stopped);
    if (!results) return results.error();
    const model::Generation& result = results->front();
    ChatStats stats;
    stats.prompt_tokens = result.timings.prompt_tokens;
    stats.cached_tokens = result.timings.cached.all;
    stats.answer_tokens = static_cast<uint32_t>(result.tokens.size());
    stats.draft_tokens = result.timings.draft_tokens;
    stats.accepted_draft_tokens = result.timings.accepted_tokens;
    stats.prefill_ms = static_cast<double>(result.timings.prefill_us) / 1e3;
    stats.decode_ms = static_cast<double>(result.timings.decode_us) / 1e3;
    stats.finish_reason = std::string(to_string(result.finish.reason));
    return stats;
  }

 private:
  std::unique_ptr<model::Generator> generator_;

  /// The server's rules for the length of an answer.
  Result<void> fit_context(GenerationRequest& request) const {
    const ContextShare share{request.prompt.size(), generator_->engine().context_tokens()};
    const auto room = share.room("messages");
    if (!room) return room.error();
    if (request.stop.max_tokens == 0) request.stop.max_tokens = static_cast<uint32_t>(*room);
    return share.holds(request.stop.max_tokens);
  }
};

nlohmann::ordered_json request_body(const std::string& model,
                                    const nlohmann::ordered_json& messages,
                                    const SamplingFlags& sampling) {
  nlohmann::ordered_json body = sampling.to_json();
  body["model"] = model;
  body["messages"] = messages;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  return body;
}

std::string error_text(const HttpReply& reply) {
  return error_of(nlohmann::json::parse(reply.body, nullptr, false))
      .value_or("HTTP " + std::to_string(reply.status) + " " + reply.body);
}

/// Takes one event of the answer's stream into `stats`; returns an error's message, if it is one.
std::string take_event(std::string_view data, ChatStats& stats,
                       const std::function<void(std::string_view)>& on_text) {
  const auto event = nlohmann::json::parse(data, nullptr, false);
  if (auto error = error_of(event)) return *error;
  if (const auto& usage = member_of(event, "usage"); usage.is_object()) {
    stats.prompt_tokens = count_of(usage, "prompt_tokens");
    stats.cached_tokens = count_of(member_of(usage, "prompt_tokens_details"), "cached_tokens");
    stats.answer_tokens = count_of(usage, "completion_tokens");
  }
  if (const auto& timings = member_of(event, "timings"); timings.is_object()) {
    stats.draft_tokens = count_of(timings, "draft_n");
    stats.accepted_draft_tokens = count_of(timings, "draft_n_accepted");
    stats.prefill_ms = number_of(timings, "prefill_ms");
    stats.decode_ms = number_of(timings, "decode_ms");
  }
  for (const auto& choice : member_of(event, "choices")) {
    if (auto text = text_of(member_of(choice, "delta"), "content"); !text.empty()) on_text(text);
    if (auto reason = text_of(choice, "finish_reason"); !reason.empty()) {
      stats.finish_reason = std::move(reason);
    }
  }
  return {};
}

class RemoteChat final : public ChatBackend {
 public:
  RemoteChat(std::unique_ptr<HttpClient> client, std::string url, std::string model)
      : client_(std::move(client)), url_(std::move(url)), model_(std::move(model)) {}

  std::string description() const override { return model_ + " at " + url_; }

  Result<ChatStats> answer(const nlohmann::ordered_json& messages, const SamplingFlags& sampling,
                           const std::function<void(std::string_view)>& on_text,
                           const std::function<bool()>& stopped) override {
    ChatStats stats;
    std::string failure;
    SseReader reader;
    // What a person pastes may be no UTF-8; a local model sees the same replacement.
    const std::string body = request_body(model_, messages, sampling)
                                 .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const auto reply = client_->post_stream(
        "/v1/chat/completions", body,
        [&](std::string_view bytes) {
          reader.push(bytes, [&](std::string_view data) {
            if (failure.empty()) failure = take_event(data, stats, on_text);
          });
          return failure.empty();
        },
        stopped);
    if (!reply) return reply.error();
    if (reply->status != 200 && reply->status != k_stopped) failure = error_text(*reply);
    if (!failure.empty()) return fail(ErrorCode::unavailable, failure);
    return stats;
  }

 private:
  std::unique_ptr<HttpClient> client_;
  std::string url_;
  std::string model_;
};

}  // namespace

Result<std::unique_ptr<ChatBackend>> local_chat(const Settings& settings) {
  auto loaded = load_with_progress(settings);
  if (!loaded) return loaded.error();
  model::EngineOptions options = engine_options(settings);
  OUTRIDER_TRY(plan_kv_kinds(*loaded, settings, options));
  auto generator = model::Generator::create(*loaded, options);
  if (!generator) return generator.error();
  return std::unique_ptr<ChatBackend>(std::make_unique<LocalChat>(std::move(*generator)));
}

Result<std::unique_ptr<ChatBackend>> remote_chat(const std::string& url, const std::string& api_key,
                                                 const std::string& model) {
  auto client = HttpClient::connect(url, api_key);
  if (!client) return client.error();
  const auto reply = (*client)->get("/v1/models");
  if (!reply) return reply.error();
  const auto json = nlohmann::json::parse(reply->body, nullptr, false);
  const auto& models = member_of(json, "data");
  if (reply->status != 200 || !models.is_array() || models.empty()) {
    return fail(ErrorCode::unavailable, url + "/v1/models: " + error_text(*reply));
  }
  std::string names;
  for (const auto& served : models) {
    const std::string name = text_of(served, "id", "default");
    if (model.empty() || name == model) {
      return std::unique_ptr<ChatBackend>(
          std::make_unique<RemoteChat>(std::move(*client), url, name));
    }
    names += (names.empty() ? "" : ", ") + name;
  }
  return fail(ErrorCode::not_found, "model: " + url + " serves " + names + ", not " + model,
              "model");
}

}  // namespace outrider::tools
