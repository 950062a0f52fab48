#pragma once

#include <optional>
#include <vector>

#include "base/request.hpp"
#include "model/engine.hpp"
#include "schema/messages.hpp"

namespace outrider::actors {

/// A stretch of output as messages, each under limits::tokens_message_bytes_max; the finish is in
/// the last one. Never empty.
struct Stretch {
  RequestKey key;
  uint32_t choice = 0;
  uint32_t first_index = 0;
  std::span<const TokenOut> tokens;
  uint32_t prompt_first_index = 0;
  std::span<const TokenOut> prompt_tokens;
  std::optional<Finish> finish;
};
std::vector<schema::Tokens> split(const Stretch& stretch);

/// What a target remembers of one request until its session has everything: all output, so that
/// any gap can be sent again. Owned by the target actor.
class RequestRecord {
 public:
  RequestRecord(schema::SessionHandle session, const GenerationRequest& request);

  const schema::SessionHandle& session() const { return session_; }
  bool done() const { return unfinished_ == 0; }
  uint32_t output_tokens() const;

  /// Takes an update of the engine and returns what the session must be told.
  std::vector<schema::Tokens> add(const model::ChoiceUpdate& update);
  /// What the session does not have yet; empty if that is nothing.
  std::vector<schema::Tokens> missing(const schema::Resend& resend) const;
  schema::Done done_message(RequestKey key) const;

  /// Rows still to go through the model, if each choice gets `expected_output` tokens.
  uint64_t queued_rows(uint32_t expected_output) const;

 private:
  struct Choice {
    std::vector<TokenOut> tokens;
    std::optional<Finish> finish;
  };

  schema::SessionHandle session_;
  uint32_t prefill_rows_;
  uint32_t first_index_;  ///< Of each choice's tokens: how many were committed before.
  uint32_t max_tokens_;
  std::vector<Choice> choices_;
  std::vector<TokenOut> prompt_tokens_;
  uint32_t unfinished_;
  std::optional<std::string> error_;  ///< Of a choice that failed.
  RequestTimings timings_;
};

}  // namespace outrider::actors
