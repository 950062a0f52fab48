#pragma once

#include <kj/async-io.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "gateway/backend.hpp"
#include "gateway/gateway.hpp"
#include "model/chat_template.hpp"
#include "model/gguf.hpp"
#include "model/tokenizer.hpp"

/// Support of the gateway's tests: a backend whose sessions do what the test says, and a gateway on
/// real loopback sockets around it.
namespace outrider::gateway::testing_support {

struct ScriptedSession {
  uint64_t id = 0;
  std::string model;
  GenerationRequest request;
  std::shared_ptr<schema::ClientStream> stream;
  std::vector<uint32_t> sent;  ///< [choices] tokens
  uint32_t resumed = 0;
  bool cancelled = false;
  bool done = false;
};

/// Sessions in the order in which they were opened. KJ thread.
class ScriptedBackend final : public Backend {
 public:
  static constexpr uint32_t k_cached = 3;  ///< Prompt tokens of each session.
  static constexpr uint32_t k_cached_cold = 1;
  static constexpr uint32_t k_drafted = 5;
  static constexpr uint32_t k_accepted = 4;
  static constexpr uint32_t k_refused = 7;  ///< Pins of the pool.
  static constexpr uint32_t k_refused_cold = 6;

  explicit ScriptedBackend(std::shared_ptr<const model::Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  void open(uint64_t session, const std::string& model, GenerationRequest request,
            std::shared_ptr<schema::ClientStream> stream) override {
    auto& opened = sessions.emplace_back();
    opened.id = session;
    opened.model = model;
    opened.sent.resize(request.choices);
    opened.request = std::move(request);
    opened.stream = std::move(stream);
    if (on_open) on_open(opened);
  }
  void cancel(uint64_t session) override {
    auto& s = find(session);
    s.cancelled = true;
    if (!s.done) end(s, schema::StreamDone::Outcome::cancelled);
  }
  void resume(uint64_t session) override { ++find(session).resumed; }

  /// Sends the tokens of `text` to one choice, optionally with its end.
  schema::ClientStream::Level say(ScriptedSession& s, std::string_view text, uint32_t choice = 0,
                                  std::optional<Finish> finish = std::nullopt) {
    return say_ids(s, tokenizer_->encode(text, {.add_special = false}), choice, finish);
  }
  schema::ClientStream::Level say_ids(ScriptedSession& s, const std::vector<int32_t>& ids,
                                      uint32_t choice = 0,
                                      std::optional<Finish> finish = std::nullopt) {
    schema::StreamTokens event;
    event.choice = choice;
    event.first_index = s.sent[choice];
    for (const int32_t id : ids) event.tokens.push_back(token(id, s.request.logprobs));
    s.sent[choice] += static_cast<uint32_t>(ids.size());
    event.finish = finish;
    return s.stream->push(std::move(event));
  }
  /// The prompt's own logprobs, as a request with prompt_logprobs gets them.
  void say_prompt(ScriptedSession& s) {
    schema::StreamTokens event;
    for (const int32_t id : s.request.prompt) {
      event.prompt_tokens.push_back(token(id, s.request.prompt_logprobs));
    }
    event.prompt_tokens.front().logprob.reset();
    s.stream->push(std::move(event));
  }
  void end(ScriptedSession& s, schema::StreamDone::Outcome outcome,
           std::optional<Error> error = std::nullopt, uint32_t retry_after_ms = 0) {
    s.done = true;
    schema::StreamDone event;
    event.outcome = outcome;
    event.error = std::move(error);
    event.retry_after_ms = retry_after_ms;
    event.timings = {
        1'000,      2'000,     3'000,         0, 0, {k_cached, 0, k_cached_cold, 0}, k_drafted,
        k_accepted, k_refused, k_refused_cold};
    s.stream->push(std::move(event));
    s.stream.reset();
  }
  /// One answer, whole.
  void answer(ScriptedSession& s, std::string_view text, FinishReason reason = FinishReason::stop) {
    for (uint32_t choice = 0; choice < s.request.choices; ++choice) {
      say(s, text, choice, Finish{reason, -1, -1});
    }
    end(s, schema::StreamDone::Outcome::done);
  }

  std::deque<ScriptedSession> sessions;
  std::function<void(ScriptedSession&)> on_open;

 private:
  ScriptedSession& find(uint64_t id) {
    for (auto& session : sessions) {
      if (session.id == id) return session;
    }
    OUTRIDER_CHECK(false, id);
    return sessions.front();
  }
  /// Logprob -1/4 and as many alternatives as asked for, at -1/2, -3/4, …: exact in binary.
  static TokenOut token(int32_t id, int32_t logprobs) {
    TokenOut out{id, std::nullopt};
    if (logprobs < 0) return out;
    out.logprob = TokenLogprob{-0.25f, 1, {}};
    for (int32_t i = 0; i < logprobs; ++i) {
      out.logprob->top.emplace_back((id + i) % 64, -0.25f * static_cast<float>(i + 1));
    }
    return out;
  }

  std::shared_ptr<const model::Tokenizer> tokenizer_;
};

/// A gateway on free loopback ports with the tiny model's tokenizer; everything on this thread.
class LoopbackGateway {
 public:
  static constexpr uint32_t k_context = 256;

  /// `adjust` may change what the gateway is made of.
  explicit LoopbackGateway(GatewayOptions options = {}, bool ready = true,
                           const std::function<void(Gateway::Parts&)>& adjust = {},
                           const Clock* clock = nullptr)
      : io(kj::setupAsyncIo()), metrics("tiny"), backend(tiny_tokenizer()) {
    options.http_address = "127.0.0.1:0";
    options.rpc_address = "127.0.0.1:0";
    options.version = "9.9";
    Gateway::Parts parts{
        clock ? *clock : steady, metrics, silent_logger(), [](const Viewer&) { return "{}"; }, {}};
    if (adjust) adjust(parts);
    auto opened = Gateway::open(io, options, std::move(parts));
    OUTRIDER_CHECK(opened.ok());
    gateway = std::move(*opened);
    if (ready) serve();
  }

  ~LoopbackGateway() noexcept = default;  // KJ's destructors may throw, gtest's may not

  void serve() { gateway->serve({tiny_model(), small_model()}, backend); }

  static ServedModel tiny_model() {
    ServedModel served;
    served.name = "tiny";
    served.text.name = "tiny";
    served.text.tokenizer = tiny_tokenizer();
    served.text.chat_template =
        std::make_shared<model::ChatTemplate>(model::ChatTemplate::chatml());
    served.context_tokens = k_context;
    served.fingerprint = "fp_test";
    return served;
  }

  /// Served as well, for who names it.
  static ServedModel small_model() {
    ServedModel served = tiny_model();
    served.name = "small";
    served.context_tokens = k_context / 2;
    served.fingerprint = "fp_small";
    return served;
  }

  static std::shared_ptr<const model::Tokenizer> tiny_tokenizer() {
    static const auto tokenizer = [] {
      auto file = model::GgufFile::open("tests/support/models/tiny-llama.gguf");
      OUTRIDER_CHECK(file.ok());
      auto made = model::Tokenizer::from_gguf(*file);
      OUTRIDER_CHECK(made.ok());
      return *made;
    }();
    return tokenizer;
  }

  /// Lets the loop run until `done` says so.
  template <class Done>
  void run_until(Done done) {
    while (!done()) {
      io.provider->getTimer().afterDelay(1 * kj::MILLISECONDS).wait(io.waitScope);
    }
  }

  kj::AsyncIoContext io;
  SteadyClock steady;
  ServingMetrics metrics;
  ScriptedBackend backend;
  std::unique_ptr<Gateway> gateway;
};

}  // namespace outrider::gateway::testing_support
