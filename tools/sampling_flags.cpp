#include "tools/sampling_flags.hpp"

#include <algorithm>
#include <sstream>

namespace outrider::tools {
namespace {

template <class T>
std::string with_default(const char* help, T value) {
  std::ostringstream out;
  out << help << " [" << value << "]";
  return out.str();
}

}  // namespace

void SamplingFlags::add(CLI::App& command) {
  const auto number = [&](const char* name, float& value, NumberRange range, const char* help) {
    command.add_option(name, value, with_default(help, value))
        ->check(in_range(range))
        ->type_name("NUMBER");
  };
  const auto integer = [&](const char* name, auto& value, IntegerRange range, const char* help) {
    command.add_option(name, value, with_default(help, value))
        ->check(in_range(range))
        ->type_name("N");
  };
  command
      .add_option("-n,--max-tokens", stop.max_tokens,
                  stop.max_tokens == 0 ? "tokens to generate [what the context leaves]"
                                       : with_default("tokens to generate", stop.max_tokens))
      ->check(in_range(k_answer_tokens))
      ->type_name("N");
  number("--temperature", params.temperature, ranges::temperature, "0 is greedy");
  integer("--top-k", params.top_k, ranges::top_k, "0 is all");
  number("--top-p", params.top_p, ranges::top_p, "nucleus");
  number("--min-p", params.min_p, ranges::min_p, "relative to the best");
  number("--repetition-penalty", params.repetition_penalty, ranges::repetition_penalty,
         "1 is none");
  number("--presence-penalty", params.presence_penalty, ranges::presence_penalty, "0 is none");
  number("--frequency-penalty", params.frequency_penalty, ranges::frequency_penalty, "0 is none");
  command.add_option("--seed", params.seed, "same seed, same answer [0; chat: drawn]")
      ->check(in_range(ranges::seed))
      ->type_name("N");
  command.add_option("--stop", stop.stop_strings, "stop string, repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TEXT");
  command.add_flag("--ignore-eos", stop.ignore_eos, "go on after the end token");
}

void SamplingFlags::apply(GenerationRequest& request) const {
  request.sampling = params;
  request.sampling.top_k = std::max(params.top_k, 0);
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
  if (max_tokens != 0) out["max_tokens"] = max_tokens;
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
