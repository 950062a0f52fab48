#include "actors/request_record.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/limits.hpp"

namespace outrider::actors {
namespace {

/// How many tokens from the front fit one message; at least one.
size_t fitting(std::span<const TokenOut> tokens) {
  size_t bytes = 0;
  size_t count = 0;
  while (count < tokens.size()) {
    bytes += schema::encoded_bytes(tokens[count]);
    if (count > 0 && bytes > limits::tokens_message_bytes_max) break;
    ++count;
  }
  return count;
}

std::span<const TokenOut> tail(const std::vector<TokenOut>& all, uint32_t from) {
  return std::span(all).subspan(std::min<size_t>(from, all.size()));
}

}  // namespace

std::vector<schema::Tokens> split(const Stretch& stretch) {
  std::vector<schema::Tokens> messages;
  auto prompt = stretch.prompt_tokens;
  auto tokens = stretch.tokens;
  uint32_t prompt_index = stretch.prompt_first_index;
  uint32_t index = stretch.first_index;
  do {
    schema::Tokens& message = messages.emplace_back();
    message.key = stretch.key;
    message.choice = stretch.choice;
    message.first_index = index;
    if (!prompt.empty()) {
      const size_t count = fitting(prompt);
      message.prompt_first_index = prompt_index;
      message.prompt_tokens = schema::encode_tokens(prompt.first(count));
      prompt = prompt.subspan(count);
      prompt_index += static_cast<uint32_t>(count);
    } else {
      const size_t count = fitting(tokens);
      message.tokens = schema::encode_tokens(tokens.first(count));
      tokens = tokens.subspan(count);
      index += static_cast<uint32_t>(count);
    }
  } while (!prompt.empty() || !tokens.empty());
  if (stretch.finish) messages.back().finish = schema::WireFinish::of(*stretch.finish);
  return messages;
}

RequestRecord::RequestRecord(schema::SessionHandle session, const GenerationRequest& request)
    : session_(std::move(session)),
      prefill_rows_(static_cast<uint32_t>(request.prompt.size() + request.committed.size())),
      first_index_(static_cast<uint32_t>(request.committed.size())),
      max_tokens_(request.stop.max_tokens),
      choices_(request.choices),
      unfinished_(request.choices) {}

uint32_t RequestRecord::output_tokens() const {
  size_t count = 0;
  for (const Choice& choice : choices_) count += choice.tokens.size();
  return static_cast<uint32_t>(count);
}

std::vector<schema::Tokens> RequestRecord::add(const model::ChoiceUpdate& update) {
  Choice& choice = choices_.at(update.choice);
  OUTRIDER_CHECK(!choice.finish, update.key.session, update.choice);
  OUTRIDER_CHECK(update.tokens.empty() || update.first_index == first_index_ + choice.tokens.size(),
                 update.first_index, first_index_, choice.tokens.size());
  const auto next = first_index_ + static_cast<uint32_t>(choice.tokens.size());
  choice.tokens.insert(choice.tokens.end(), update.tokens.begin(), update.tokens.end());
  prompt_tokens_.insert(prompt_tokens_.end(), update.prompt_tokens.begin(),
                        update.prompt_tokens.end());
  choice.finish = update.finish;
  if (update.finish) --unfinished_;
  if (update.finish && update.finish->reason == FinishReason::failed) error_ = update.error;
  if (update.timings) {
    const RequestTimings& timings = *update.timings;
    const uint32_t preemptions = timings_.preemptions + timings.preemptions;
    const bool longest = timings.decode_us >= timings_.decode_us;
    if (longest) timings_ = timings;
    timings_.preemptions = preemptions;
  }
  return split({update.key, update.choice, next, update.tokens, update.prompt_first_index,
                update.prompt_tokens, update.finish});
}

std::vector<schema::Tokens> RequestRecord::missing(const schema::Resend& resend) const {
  if (resend.choice >= choices_.size()) return {};
  const Choice& choice = choices_[resend.choice];
  const uint32_t from = std::max(resend.from_index, first_index_);
  Stretch stretch;
  stretch.key = resend.key;
  stretch.choice = resend.choice;
  stretch.first_index = from;
  stretch.tokens = tail(choice.tokens, from - first_index_);
  stretch.finish = choice.finish;
  if (resend.choice == 0) {
    stretch.prompt_first_index = resend.prompt_from_index;
    stretch.prompt_tokens = tail(prompt_tokens_, resend.prompt_from_index);
  }
  const bool nothing = stretch.tokens.empty() && stretch.prompt_tokens.empty() && !stretch.finish;
  return nothing ? std::vector<schema::Tokens>{} : split(stretch);
}

schema::Done RequestRecord::done_message(RequestKey key) const {
  schema::Done done;
  done.key = key;
  done.timings = timings_;
  if (error_) done.error = schema::Refusal::of(fail(ErrorCode::internal, *error_));
  return done;
}

uint64_t RequestRecord::queued_rows(uint32_t expected_output) const {
  uint64_t rows = output_tokens() == 0 ? prefill_rows_ : 0;
  for (const Choice& choice : choices_) {
    if (choice.finish) continue;
    const uint64_t produced = first_index_ + choice.tokens.size();
    const uint64_t expected = std::min(expected_output, max_tokens_);
    // One that outlived the expectation still gets at least its next token.
    rows += expected > produced ? expected - produced : 1;
  }
  return rows;
}

}  // namespace outrider::actors
