#include "tools/sampling_flags.hpp"

#include "base/limits.hpp"

namespace outrider::tools {

void SamplingFlags::add(CLI::App& command) {
  command.add_option("-n,--max-tokens", max_tokens, "tokens to generate [64]")
      ->check(CLI::Range(1u, 1u << 24))
      ->type_name("N");
  command.add_option("--temperature", temperature, "0 is greedy [1.0]")
      ->check(CLI::Range(0.0f, 100.0f))
      ->type_name("T");
  command.add_option("--top-k", top_k, "0 is all [0]")->check(CLI::Range(0, 1 << 20));
  command.add_option("--top-p", top_p, "nucleus [1.0]")->check(CLI::Range(0.0f, 1.0f));
  command.add_option("--min-p", min_p, "relative to the best [0.0]")->check(CLI::Range(0.0f, 1.0f));
  command.add_option("--repetition-penalty", repetition_penalty, "[1.0]")
      ->check(CLI::Range(0.01f, 100.0f));
  command.add_option("--presence-penalty", presence_penalty, "[0.0]")
      ->check(CLI::Range(-2.0f, 2.0f));
  command.add_option("--frequency-penalty", frequency_penalty, "[0.0]")
      ->check(CLI::Range(-2.0f, 2.0f));
  command.add_option("--seed", seed, "same seed, same answer [0]")->type_name("N");
  command.add_option("--stop", stop, "stop string, repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TEXT");
  command.add_flag("--ignore-eos", ignore_eos, "go on after the end token");
}

void SamplingFlags::apply(GenerationRequest& request) const {
  SamplingParams& sampling = request.sampling;
  sampling.temperature = temperature;
  sampling.top_k = top_k;
  sampling.top_p = top_p;
  sampling.min_p = min_p;
  sampling.repetition_penalty = repetition_penalty;
  sampling.presence_penalty = presence_penalty;
  sampling.frequency_penalty = frequency_penalty;
  sampling.seed = seed;
  request.stop.max_tokens = max_tokens;
  request.stop.stop_strings = stop;
  request.stop.ignore_eos = ignore_eos;
}

}  // namespace outrider::tools
