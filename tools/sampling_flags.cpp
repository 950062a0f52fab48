#include "tools/sampling_flags.hpp"

#include <sstream>

#include "base/limits.hpp"

namespace outrider::tools {
namespace {

/// CLI::Range lets NaN through.
CLI::Validator in_range(float low, float high) {
  std::ostringstream range;
  range << "FLOAT in [" << low << " - " << high << "]";
  const auto check = [low, high, range = range.str()](std::string& text) -> std::string {
    float value = 0;
    const bool good = CLI::detail::lexical_cast(text, value) && value >= low && value <= high;
    return good ? "" : "\"" + text + "\" is not a " + range;
  };
  return {check, range.str()};
}

}  // namespace

void SamplingFlags::add(CLI::App& command) {
  command.add_option("-n,--max-tokens", stop.max_tokens, "tokens to generate [64]")
      ->check(CLI::Range(1u, 1u << 24))
      ->type_name("N");
  command.add_option("--temperature", params.temperature, "0 is greedy [1.0]")
      ->check(in_range(0.0f, 100.0f))
      ->type_name("T");
  command.add_option("--top-k", params.top_k, "0 is all [0]")->check(CLI::Range(0, 1 << 20));
  command.add_option("--top-p", params.top_p, "nucleus [1.0]")->check(in_range(0.0f, 1.0f));
  command.add_option("--min-p", params.min_p, "relative to the best [0.0]")
      ->check(in_range(0.0f, 1.0f));
  command.add_option("--repetition-penalty", params.repetition_penalty, "[1.0]")
      ->check(in_range(0.01f, 100.0f));
  command.add_option("--presence-penalty", params.presence_penalty, "[0.0]")
      ->check(in_range(-2.0f, 2.0f));
  command.add_option("--frequency-penalty", params.frequency_penalty, "[0.0]")
      ->check(in_range(-2.0f, 2.0f));
  command.add_option("--seed", params.seed, "same seed, same answer [0; chat: drawn]")
      ->type_name("N");
  command.add_option("--stop", stop.stop_strings, "stop string, repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TEXT");
  command.add_flag("--ignore-eos", stop.ignore_eos, "go on after the end token");
}

void SamplingFlags::apply(GenerationRequest& request) const {
  request.sampling = params;
  request.stop = stop;
}

nlohmann::ordered_json SamplingFlags::to_json() const {
  // By structured bindings: a new field does not compile until it is here too.
  const auto& [temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty,
               frequency_penalty, logit_bias, seed] = params;
  const auto& [max_tokens, min_tokens, ignore_eos, stop_token_ids, stop_strings,
               include_stop_str_in_output, skip_special_tokens] = stop;
  nlohmann::ordered_json out;
  out["temperature"] = temperature;
  out["seed"] = seed;
  out["max_tokens"] = max_tokens;
  const auto add = [&](const char* name, const auto& value, const auto& fallback) {
    if (value != fallback) out[name] = value;
  };
  const SamplingParams usual;
  add("top_k", top_k, usual.top_k);
  add("top_p", top_p, usual.top_p);
  add("min_p", min_p, usual.min_p);
  add("repetition_penalty", repetition_penalty, usual.repetition_penalty);
  add("presence_penalty", presence_penalty, usual.presence_penalty);
  add("frequency_penalty", frequency_penalty, usual.frequency_penalty);
  for (const auto& [id, bias] : logit_bias) out["logit_bias"][std::to_string(id)] = bias;
  const StopParams ends;
  add("min_tokens", min_tokens, ends.min_tokens);
  add("ignore_eos", ignore_eos, ends.ignore_eos);
  add("stop_token_ids", stop_token_ids, ends.stop_token_ids);
  add("stop", stop_strings, ends.stop_strings);
  add("include_stop_str_in_output", include_stop_str_in_output, ends.include_stop_str_in_output);
  add("skip_special_tokens", skip_special_tokens, ends.skip_special_tokens);
  return out;
}

}  // namespace outrider::tools
