#pragma once

#include <kj/async.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/metrics.hpp"
#include "gateway/backend.hpp"
#include "gateway/prompt.hpp"
#include "gateway/token_channel.hpp"
#include "model/stopping.hpp"

namespace outrider::gateway {

/// What one step added to one choice.
struct ChoiceDelta {
  uint32_t choice = 0;  ///< Prompt index times n, plus the choice of that prompt.
  std::string text;     ///< Certain text only.
  std::vector<TokenOut> tokens;
  std::optional<Finish> finish;
};

/// Sums over the prompts and choices of one request.
struct GenerationTotals {
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
  RequestTimings timings;  ///< Times: of the slowest prompt.
  double ttft_ms = 0;      ///< From the request's arrival; 0: no token came.
};

/// One client request running in the backend: a session per prompt. Lives on the KJ thread;
/// destroying it before the end cancels what still runs.
class Generation {
 public:
  struct Parts {
    Backend& backend;
    const Clock& clock;
    RequestMetrics& metrics;     ///< Of the request's model.
    uint64_t first_session = 0;  ///< One id per prompt, counted up from here.
    TimePoint arrived{0};        ///< From which times are counted.
  };
  Generation(const Parts& parts, PreparedRequest request);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  /// Resolves when take() has something to say.
  kj::Promise<void> ready();
  /// What has come since the last call; perhaps nothing, or the end.
  std::vector<ChoiceDelta> take();

  /// Ends it now, for a reason of ours: what runs is cancelled, what has come is dropped.
  void abort(Error error);

  bool finished() const { return finished_; }
  /// Why it did not end well; set only when finished.
  const std::optional<Error>& error() const { return error_; }
  uint32_t retry_after_ms() const { return retry_after_ms_; }

  const PreparedRequest& request() const { return request_; }
  const ServedModel& served() const { return *request_.served; }
  const GenerationTotals& totals() const { return totals_; }
  uint64_t completion_tokens(uint32_t choice) const { return choices_[choice].tokens; }
  /// Prompt tokens with their logprobs, when asked for. [prompts]
  const std::vector<std::vector<TokenOut>>& prompt_tokens() const { return prompt_tokens_; }

 private:
  struct Choice {
    model::TextStream text;
    uint64_t tokens = 0;
    TimePoint first_token{0};
    TimePoint last_token{0};
  };

  void accept(uint32_t source, schema::StreamTokens event, std::vector<ChoiceDelta>& out);
  void accept(uint32_t source, const schema::StreamDone& event);
  void observe_tokens(Choice& choice, size_t count);
  void observe_end();
  void cancel_running();

  Parts parts_;
  PreparedRequest request_;
  TokenChannel channel_;
  std::vector<Choice> choices_;
  std::vector<bool> running_;  ///< [prompts]
  std::vector<std::vector<TokenOut>> prompt_tokens_;
  GenerationTotals totals_;
  bool finished_ = false;
  std::optional<Error> error_;
  uint32_t retry_after_ms_ = 0;
};

}  // namespace outrider::gateway
