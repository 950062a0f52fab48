#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/answer_traits.hpp"
#include "base/result.hpp"
#include "base/system.hpp"
#include "gateway/json_body.hpp"
#include "gateway/parsed_request.hpp"
#include "model/loaded_model.hpp"

namespace outrider::gateway {

/// A model that this gateway answers for. Immutable once serving starts.
struct ServedModel {
  std::string name;
  model::ModelText text;
  uint32_t context_tokens = 0;  ///< Of the engine: prompt and output together.
  std::string fingerprint;      ///< `system_fingerprint`: the digest of all that bits depend on,
  AnswerTraits traits;          ///< which is this.
  int64_t created_s = 0;        ///< Unix time of the start, as /v1/models shows it.
  uint32_t longest_token_bytes = 0;  ///< Set by Serving; 0: not known.
};

/// None while loading. The first one answers requests that name none.
using ServedModels = std::vector<std::shared_ptr<const ServedModel>>;

/// By the name that a request has, which may be empty.
Result<std::shared_ptr<const ServedModel>> find_served(const ServedModels& models,
                                                       std::string_view name);

/// A request that is ready for the engine: one GenerationRequest per prompt.
struct PreparedRequest {
  std::shared_ptr<const ServedModel> served;
  ParsedRequest parsed;
  std::vector<GenerationRequest> prompts;
  std::vector<std::string> echo_texts;  ///< [prompts], with `echo` only.
  bool drops_output = false;            ///< `echo` with max_tokens 0: the prompt alone was wanted.

  uint32_t choices_per_prompt() const { return parsed.generation.choices; }
  /// Given, or drawn here. Choice i of the response samples with seed + i, whichever prompt it
  /// belongs to: equal prompts get different answers, and the returned seed repeats all of them.
  uint64_t seed() const { return parsed.generation.sampling.seed; }
  uint32_t choices() const { return choices_per_prompt() * static_cast<uint32_t>(prompts.size()); }
};

/// What a server adds to a request.
struct RequestTerms {
  std::string id;
  std::string tenant;
  uint64_t drawn_seed = 0;  ///< For a request without one.
  UnixTime now;             ///< For templates that ask for the date.
};

/// Finds the model, applies its template and tokenizer and checks what depends on it: token ids,
/// context. A prompt over the context is an error that says both numbers. Pure; any thread.
Result<PreparedRequest> prepare_request(ParsedRequest parsed, const ServedModels& models,
                                        const RequestTerms& terms);

/// The prompt of a chat request: its messages through the template and the tokenizer. Any thread.
Result<std::vector<int32_t>> chat_prompt_tokens(const ParsedRequest& chat,
                                                const ServedModel& served, UnixTime now);

}  // namespace outrider::gateway
