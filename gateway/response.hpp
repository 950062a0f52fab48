#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gateway/generation.hpp"
#include "gateway/logprobs_json.hpp"
#include "model/detokenizer.hpp"

namespace outrider::gateway {

/// What clients read, to the byte: chat.completion(.chunk) and text_completion objects. One per
/// request, fed with the deltas of its Generation in order. Either the chunk side or the whole
/// side is used. KJ thread.
class ResponseWriter {
 public:
  ResponseWriter(const Generation& generation, std::string id, int64_t created_s);

  // -- streaming: server-sent events, ready to send -----------------------------------------------
  /// Before the first token: chat's role chunks; nothing for completions.
  std::string opening();
  /// The events of one delta; may be empty, when it added nothing that is seen.
  std::string chunk(const ChoiceDelta& delta);
  /// After the last delta: usage if asked for, then [DONE].
  std::string closing();
  /// An error in mid-stream, which ends the stream.
  static std::string error_event(const std::string& error_body);

  // -- not streaming ------------------------------------------------------------------------------
  void collect(std::vector<ChoiceDelta> deltas);
  std::string whole();

 private:
  struct Choice {
    model::Detokenizer detokenizer;
    std::string text;
    std::vector<TokenOut> tokens;  ///< Not yet in `logprobs`.
    GrowingArrays logprobs;
    Json ids = Json::array();
    std::optional<Finish> finish;
    uint64_t characters = 0;  ///< Of the text so far, for completions' logprobs.
    bool opened = false;
  };

  bool chat() const { return request().parsed.kind == RequestKind::chat; }
  const PreparedRequest& request() const { return generation_.request(); }
  const model::Tokenizer& tokenizer() const { return *generation_.served().text.tokenizer; }
  uint32_t prompt_of(uint32_t choice) const { return choice / request().choices_per_prompt(); }

  Json envelope(const char* object);
  Json usage(bool final) const;
  Json timings() const;
  Json seed() const;
  Json choice_chunk(const ChoiceDelta& delta);
  void write_logprobs(uint32_t choice);
  void write_prompt_logprobs();
  std::string whole_choice(uint32_t index);
  Json logprobs(uint32_t choice, std::span<const TokenOut> tokens, bool with_prompt);
  std::vector<uint64_t> prompt_offsets(uint32_t prompt) const;
  Json prompt_ids(uint32_t prompt) const;
  void set_finish(Json& choice, const std::optional<Finish>& finish) const;
  std::string event(const Json& body) const;

  const Generation& generation_;
  std::string id_;
  int64_t created_s_;
  std::vector<Choice> choices_;
  std::vector<GrowingArrays> prompt_logprobs_;  ///< [prompts]
  std::vector<size_t> prompt_written_;          ///< [prompts] tokens
  bool seed_sent_ = false;
};

}  // namespace outrider::gateway
