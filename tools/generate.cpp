#include <iostream>
#include <nlohmann/json.hpp>

#include "base/limits.hpp"
#include "base/metrics.hpp"
#include "base/regular_file.hpp"
#include "base/sampling_ranges.hpp"
#include "base/utf8.hpp"
#include "gateway/logprobs_json.hpp"
#include "model/generator.hpp"
#include "tools/command.hpp"
#include "tools/engine_options.hpp"
#include "tools/interrupt.hpp"
#include "tools/kv_plan.hpp"
#include "tools/sampling_flags.hpp"

namespace outrider::tools {
namespace {

struct GenerateFlags {
  SettingFlags settings;
  SamplingFlags sampling;
  std::string prompt;
  std::string prompt_file;
  int32_t logprobs = -1;
  bool names_max_tokens = false;
  bool chat = false;
  bool json = false;
};

/// As much as the wire takes.
constexpr size_t k_prompt_bytes_max = limits::http_body_bytes_max;

Error too_long() {
  return fail(ErrorCode::too_large,
              "file: the prompt is longer than " + std::to_string(k_prompt_bytes_max) + " bytes",
              "file");
}

Result<std::string> prompt_of_stdin() {
  std::string text(k_prompt_bytes_max + 1, '\0');
  std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::cin.gcount()));
  if (text.size() > k_prompt_bytes_max) return too_long();
  return text;
}

Result<std::string> prompt_text(const GenerateFlags& flags) {
  if (flags.prompt_file.empty()) return flags.prompt;
  if (flags.prompt_file == "-") return prompt_of_stdin();
  auto text = read_regular_file(flags.prompt_file, k_prompt_bytes_max);
  if (text) return text;
  const Error& error = text.error();
  if (error.code == ErrorCode::too_large) return too_long();
  return fail(ErrorCode::invalid_argument,
              "file: cannot read \"" + flags.prompt_file + "\": " + error.message +
                  "; - reads standard input",
              "file");
}

/// As in a chat's reply, with the ids, which --json is for.
nlohmann::ordered_json logprobs_json(const model::Generation& result,
                                     const model::Tokenizer& tokenizer) {
  nlohmann::ordered_json entries = gateway::chat_logprobs(tokenizer, result.tokens)["content"];
  for (size_t i = 0; i < entries.size(); ++i) {
    auto& alternatives = entries[i]["top_logprobs"];
    for (size_t k = 0; k < alternatives.size(); ++k) {
      alternatives[k]["id"] = result.tokens[i].logprob->top[k].first;
    }
  }
  return entries;
}

nlohmann::ordered_json result_json(const model::Generation& result, model::Generator& generator,
                                   const model::LoadedModel& model, const SamplingParams& sampling,
                                   bool with_logprobs) {
  nlohmann::ordered_json out;
  out["text"] = result.text;
  out["ids"] = nlohmann::ordered_json::array();
  for (const TokenOut& token : result.tokens) out["ids"].push_back(token.id);
  if (with_logprobs) out["logprobs"] = logprobs_json(result, *model.tokenizer);
  const RequestTimings& timings = result.timings;
  out["finish_reason"] = to_string(result.finish.reason);
  out["seed"] = sampling.seed;
  out["system_fingerprint"] = to_hex(generator.engine().fingerprint());
  out["usage"] = {{"prompt_tokens", timings.prompt_tokens},
                  {"completion_tokens", result.tokens.size()},
                  {"total_tokens", timings.prompt_tokens + result.tokens.size()},
                  {"prompt_tokens_details", {{"cached_tokens", timings.cached.all}}}};
  out["timings"] = {{"queue_ms", static_cast<double>(timings.queue_us) / 1e3},
                    {"prefill_ms", static_cast<double>(timings.prefill_us) / 1e3},
                    {"decode_ms", static_cast<double>(timings.decode_us) / 1e3},
                    {"draft_n", timings.draft_tokens},
                    {"draft_n_accepted", timings.accepted_tokens}};
  return out;
}

Result<GenerationRequest> make_request(const GenerateFlags& flags,
                                       const model::Generator& generator, const std::string& text) {
  if (!flags.chat) return generator.request(text);
  const auto messages = nlohmann::ordered_json::array({{{"role", "user"}, {"content", text}}});
  return generator.chat_request(messages);
}

/// As the server refuses it. Only a number that was asked for: the usual one is what there is room
/// for, there and here.
Result<void> check_fits(const GenerateFlags& flags, const GenerationRequest& request,
                        model::Generator& generator) {
  const ContextShare share{request.prompt.size(), generator.engine().context_tokens()};
  if (const auto room = share.room("prompt"); !room) return room.error();
  if (!flags.names_max_tokens) return {};
  return share.holds(request.stop.max_tokens);
}

int generate(const GenerateFlags& flags) {
  const auto settings = flags.settings.resolve();
  if (!settings) return report(settings.error());
  const auto text = prompt_text(flags);
  if (!text) return report(text.error());
  if (text->empty()) {
    return report(
        fail(ErrorCode::invalid_argument, "prompt: empty; use -p TEXT or --file F", "prompt"));
  }
  if (const size_t valid = utf8_valid_prefix(*text); valid != text->size()) {
    return report(fail(ErrorCode::invalid_argument,
                       "prompt: is not valid UTF-8: byte " + std::to_string(valid) + " is wrong",
                       "prompt"));
  }
  auto loaded = load_with_progress(*settings);
  if (!loaded) return report(loaded.error());
  model::EngineOptions options = engine_options(*settings);
  if (const auto planned = plan_kv_kinds(*loaded, *settings, options); !planned) {
    return report(planned.error());
  }
  auto generator = model::Generator::create(*loaded, options);
  if (!generator) return report(generator.error());

  auto request = make_request(flags, **generator, *text);
  if (!request) return report(request.error());
  flags.sampling.apply(*request);
  request->logprobs = flags.logprobs;
  if (const auto fits = check_fits(flags, *request, **generator); !fits) {
    return report(fits.error());
  }
  const SamplingParams sampling = request->sampling;

  Interrupt interrupt;
  auto results = (*generator)
                     ->generate(
                         std::move(*request),
                         [&](std::string_view piece, std::span<const TokenOut>) {
                           if (!flags.json) std::cout << piece << std::flush;
                           return true;
                         },
                         [&] { return interrupt.raised(); });
  if (!results) return report(results.error());
  if (flags.json) {
    std::cout << result_json(results->front(), **generator, **loaded, sampling, flags.logprobs >= 0)
                     .dump(2)
              << '\n';
  } else {
    std::cout << '\n';
  }
  return interrupt.raised() ? k_exit_interrupted : k_exit_done;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("generate", "One completion to stdout");
  auto flags = std::make_shared<GenerateFlags>();
  auto* prompt =
      command->add_option("-p,--prompt", flags->prompt, "text to continue")->type_name("TEXT");
  command->add_option("-f,--file", flags->prompt_file, "read the prompt from a file, - for stdin")
      ->type_name("FILE")
      ->excludes(prompt);
  command->add_flag("--chat", flags->chat, "as a user message, through the chat template");
  auto* json = command->add_flag("--json", flags->json, "ids, logprobs, usage and timings as JSON");
  command->add_option("--logprobs", flags->logprobs, "alternatives per token, with --json")
      ->check(in_range(IntegerRange{0, limits::top_logprobs_max}))
      ->type_name("N")
      ->needs(json);
  flags->sampling.add(*command);
  flags->settings.add(*command, engine_setting_names());
  command->footer(
      "Example: outrider generate --model smollm2-135m -p \"The capital of France is\" -n 16 "
      "--temperature 0");
  command->callback([flags, command, &action] {
    flags->names_max_tokens = command->count("--max-tokens") > 0;
    action = [flags] { return generate(*flags); };
  });
}

}  // namespace outrider::tools
