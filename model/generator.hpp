#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/request.hpp"
#include "base/result.hpp"
#include "model/engine.hpp"

namespace outrider::model {

/// One finished choice.
struct Generation {
  std::vector<TokenOut> tokens;
  std::string text;
  Finish finish;
  RequestTimings timings;
  std::vector<TokenOut> prompt_tokens;  ///< With prompt_logprobs only.
};

/// Called with each piece of text as it becomes certain (never half a character, never part of a
/// stop string) and the tokens behind it. Returning false cancels.
using StreamCallback = std::function<bool(std::string_view text, std::span<const TokenOut> tokens)>;

/// A model without actors: for embedding, `outrider generate` and tests. Computes inside the
/// caller's calls, with the thread pool of its kernels. Not thread-safe. See
/// docs/examples/embed.cpp.
class Generator {
 public:
  static Result<std::unique_ptr<Generator>> open(const std::string& path,
                                                 const EngineOptions& options = {},
                                                 uint32_t threads = 0 /* all */);
  static Result<std::unique_ptr<Generator>> create(std::shared_ptr<const LoadedModel> model,
                                                   const EngineOptions& options = {});
  ~Generator();

  const LoadedModel& model() const;
  Engine& engine();

  /// Text to a request with the tokenizer's own special tokens added.
  GenerationRequest request(std::string_view prompt) const;

  /// Chat messages ([{role, content}, …]) to a request, through the model's template.
  Result<GenerationRequest> chat_request(const nlohmann::ordered_json& messages) const;

  /// One request, first choice streamed. `stopped` is asked before each step, prefill included;
  /// true cancels.
  Result<std::vector<Generation>> generate(GenerationRequest request,
                                           const StreamCallback& on_text = {},
                                           const std::function<bool()>& stopped = {});
  /// Many requests in one continuous batch; results in the order of the requests.
  Result<std::vector<std::vector<Generation>>> generate_batch(
      std::vector<GenerationRequest> requests);

  /// Adds a user message to the running conversation and answers it; history is kept.
  Result<Generation> chat(std::string_view user_message, GenerationRequest settings,
                          const StreamCallback& on_text = {});
  /// Forgets the conversation.
  void reset();

 private:
  Generator();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace outrider::model
