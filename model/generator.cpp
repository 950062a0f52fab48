#include "model/generator.hpp"

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/cpu_count.hpp"
#include "model/step_costs.hpp"
#include "model/stopping.hpp"

namespace outrider::model {
namespace {

using nlohmann::ordered_json;

/// Collects the updates of one request.
class Collector {
 public:
  Collector(const GenerationRequest& request, const std::shared_ptr<const Tokenizer>& tokenizer)
      : results_(request.choices), texts_(request.choices, TextStream(tokenizer, request.stop)) {}

  /// The text that became certain.
  std::string add(const ChoiceUpdate& update) {
    Generation& result = results_[update.choice];
    std::string piece = texts_[update.choice].push(update.tokens, update.finish);
    result.text += piece;
    append(result.tokens, update.tokens);
    append(result.prompt_tokens, update.prompt_tokens);
    if (update.finish) {
      result.finish = *update.finish;
      result.timings = *update.timings;
      if (update.finish->reason == FinishReason::failed) error_ = update.error;
      ++finished_;
    }
    return piece;
  }

  bool done() const { return finished_ == results_.size(); }
  const std::optional<std::string>& error() const { return error_; }
  std::vector<Generation> take() { return std::move(results_); }

 private:
  static void append(std::vector<TokenOut>& to, const std::vector<TokenOut>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  std::vector<Generation> results_;
  std::vector<TextStream> texts_;
  size_t finished_ = 0;
  std::optional<std::string> error_;
};

ordered_json message(std::string_view role, std::string_view content) {
  return {{"role", role}, {"content", content}};
}

}  // namespace

struct Generator::State {
  std::shared_ptr<const LoadedModel> model;
  SteadyClock clock;
  std::unique_ptr<Engine> engine;
  ordered_json history = ordered_json::array();
  uint64_t sessions = 0;

  Result<std::vector<std::vector<Generation>>> run(std::vector<GenerationRequest> requests,
                                                   const StreamCallback& on_text,
                                                   const std::function<bool()>& stopped = {});
  void cancel(uint64_t first);
  void drain(uint64_t first);
};

void Generator::State::cancel(uint64_t first) {
  for (uint64_t i = first; i <= sessions; ++i) engine->cancel({i, 0});
}

/// Ends whatever still runs.
void Generator::State::drain(uint64_t first) {
  cancel(first);
  while (!engine->idle()) engine->step();
}

Result<std::vector<std::vector<Generation>>> Generator::State::run(
    std::vector<GenerationRequest> requests, const StreamCallback& on_text,
    const std::function<bool()>& stopped) {
  const uint64_t first = sessions + 1;
  std::vector<Collector> collectors;
  size_t submitted = 0;
  while (submitted < requests.size() || !engine->idle()) {
    while (submitted < requests.size()) {
      const auto accepted = engine->submit({first + submitted, 0}, requests[submitted]);
      if (!accepted && accepted.error().code == ErrorCode::overloaded && !engine->idle()) break;
      if (!accepted) {
        drain(first);
        return accepted.error();
      }
      collectors.emplace_back(requests[submitted], model->tokenizer);
      sessions = first + submitted++;
    }
    if (stopped && stopped()) cancel(first);
    for (const ChoiceUpdate& update : engine->step()) {
      Collector& collector = collectors[update.key.session - first];
      const std::string piece = collector.add(update);
      if (update.choice == 0 && on_text && !on_text(piece, update.tokens)) {
        engine->cancel(update.key);
      }
    }
  }
  std::vector<std::vector<Generation>> results;
  for (Collector& collector : collectors) {
    OUTRIDER_CHECK(collector.done());
    if (collector.error()) return fail(ErrorCode::internal, *collector.error());
    results.push_back(collector.take());
  }
  return results;
}

Generator::Generator() : state_(std::make_unique<State>()) {}
Generator::~Generator() = default;

Result<std::unique_ptr<Generator>> Generator::open(const std::string& path,
                                                   const EngineOptions& options, uint32_t threads) {
  if (threads == 0) threads = usable_cpus().threads;
  auto ops = kernels::open_cpu_ops(threads, kernels::default_isa());
  if (!ops) return ops.error();
  auto model = load_model(path, std::move(ops).value());
  if (!model) return model.error();
  return create(std::move(model).value(), options);
}

Result<std::unique_ptr<Generator>> Generator::create(std::shared_ptr<const LoadedModel> model,
                                                     const EngineOptions& options) {
  auto generator = std::unique_ptr<Generator>(new Generator());
  State& state = *generator->state_;
  OUTRIDER_ASSIGN(state.engine, Engine::create(model, options, state.clock));
  if (options.speculation.depth_max > 0 && !options.speculation.fixed_depth) {
    state.engine->set_step_costs(measure_few_step_costs(*state.engine, state.clock));
  }
  state.model = std::move(model);
  return generator;
}

const LoadedModel& Generator::model() const {
  return *state_->model;
}

Engine& Generator::engine() {
  return *state_->engine;
}

GenerationRequest Generator::request(std::string_view prompt) const {
  GenerationRequest request;
  request.prompt = state_->model->tokenizer->encode(prompt);
  return request;
}

Result<GenerationRequest> Generator::chat_request(const ordered_json& messages) const {
  const auto now =
      std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  const auto text =
      state_->model->chat_template->render(messages, nullptr, true, ordered_json::object(), now);
  if (!text) return text.error();
  // The template writes the special tokens itself.
  GenerationRequest request;
  request.prompt = state_->model->tokenizer->encode(*text, {.add_special = false});
  return request;
}

Result<std::vector<Generation>> Generator::generate(GenerationRequest request,
                                                    const StreamCallback& on_text,
                                                    const std::function<bool()>& stopped) {
  std::vector<GenerationRequest> requests;
  requests.push_back(std::move(request));
  auto results = state_->run(std::move(requests), on_text, stopped);
  if (!results) return results.error();
  return std::move(results->front());
}

Result<std::vector<std::vector<Generation>>> Generator::generate_batch(
    std::vector<GenerationRequest> requests) {
  return state_->run(std::move(requests), {});
}

Result<Generation> Generator::chat(std::string_view user_message, GenerationRequest settings,
                                   const StreamCallback& on_text) {
  ordered_json messages = state_->history;
  messages.push_back(message("user", user_message));
  auto request = chat_request(messages);
  if (!request) return request.error();
  settings.prompt = std::move(request->prompt);
  settings.committed.clear();
  settings.choices = 1;
  auto answers = generate(std::move(settings), on_text);
  if (!answers) return answers.error();
  messages.push_back(message("assistant", answers->front().text));
  state_->history = std::move(messages);
  return std::move(answers->front());
}

void Generator::reset() {
  state_->history = ordered_json::array();
}

}  // namespace outrider::model
