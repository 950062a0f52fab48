#include "gateway/serving.hpp"

#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "base/utf8.hpp"
#include "gateway/error_reply.hpp"
#include "gateway/json_values.hpp"
#include "gateway/text.hpp"

namespace outrider::gateway {
namespace {

/// Drawn seeds stay exact in clients whose numbers are doubles, with room for `seed + choice`.
uint64_t as_seed(uint64_t bits) {
  return bits >> 12;
}

Result<void> take_off(Duration elapsed, std::vector<GenerationRequest>& prompts) {
  using std::chrono::milliseconds;
  for (auto& prompt : prompts) {
    if (prompt.deadline_ms == 0) continue;
    if (elapsed >= milliseconds(prompt.deadline_ms)) {
      return fail(ErrorCode::deadline_exceeded,
                  "the deadline of " + std::to_string(prompt.deadline_ms) +
                      " ms had passed before the prompt was tokenized",
                  "deadline_ms");
    }
    prompt.deadline_ms -=
        static_cast<uint32_t>(std::chrono::duration_cast<milliseconds>(elapsed).count());
  }
  return {};
}

Error stopping() {
  return fail(ErrorCode::unavailable, "the server is stopping");
}

}  // namespace

const char* to_string(Phase phase) {
  switch (phase) {
    case Phase::loading:
      return "loading";
    case Phase::ready:
      return "ready";
    case Phase::draining:
      return "draining";
  }
  return "loading";
}

// Session ids are unique in a cluster of gateways with overwhelming probability: they count up
// from a random start.
Serving::Serving(Parts parts)
    : parts_(std::move(parts)),
      next_session_(parts_.random_bits() >> 1),
      cache_resets_(parts_.reset_cache) {}

void Serving::set_models(std::vector<ServedModel> served, Backend& backend) {
  OUTRIDER_CHECK(phase_ == Phase::loading && !served.empty());
  for (ServedModel& model : served) {
    model.longest_token_bytes = longest_token_bytes(*model.text.tokenizer);
    parts_.metrics.requests(model.name);  // its series begin at zero
    served_.push_back(std::make_shared<const ServedModel>(std::move(model)));
  }
  backend_ = &backend;
  phase_ = Phase::ready;
}

void Serving::begin_drain() {
  phase_ = Phase::draining;
  auto pair = kj::newPromiseAndFulfiller<void>();
  when_idle_ = kj::mv(pair.fulfiller);
  idle_ = pair.promise.fork();
  if (open_requests_ == 0) when_idle_->fulfill();
}

void Serving::stop() {
  stopped_ = true;
  for (auto* generation : generations_) generation->abort(stopping());
}

Viewer Serving::viewer(std::optional<std::string_view> authorization) const {
  return viewer_of(parts_.keys.tenant_of_header(authorization).value_or(""));
}

Viewer Serving::viewer_of(std::string tenant) const {
  if (parts_.keys.empty()) return {.sees_all = true};
  const bool is_admin = !tenant.empty() && tenant == parts_.admin_tenant;
  return {.sees_all = is_admin, .tenant = std::move(tenant)};
}

kj::Promise<Result<CacheResetDone>> Serving::reset_cache(const Caller& caller, bool cold) {
  if (const auto admitted = admit(); !admitted) return CacheResets::refuse(admitted.error());
  const Viewer viewer = viewer_of(caller.tenant);
  CacheReset what{.tenant = std::nullopt, .cold = cold};
  if (!viewer.sees_all) what.tenant = viewer.tenant;
  LogLine line("reset");
  line.text("rid", caller.request_id).word("tenant", caller.tenant);
  line.text("of", viewer.sees_all ? "all" : "own").text("cold", cold ? "true" : "false");
  return cache_resets_.start(std::move(what)).then([this, line](Result<CacheResetDone> done) {
    if (done) line.write(log());
    return done;
  });
}

Result<void> Serving::admit() const {
  if (phase_ == Phase::loading) return fail(ErrorCode::unavailable, parts_.not_ready.message);
  if (phase_ == Phase::draining) return fail(ErrorCode::unavailable, "the server is draining");
  if (open_requests_ >= limits::open_requests_max) {
    return fail(ErrorCode::overloaded,
                "too many requests are open: " + std::to_string(open_requests_));
  }
  return {};
}

Result<void> Serving::open_request() {
  OUTRIDER_TRY(admit());
  ++open_requests_;
  return {};
}

void Serving::request_ended(Generation* generation) {
  OUTRIDER_CHECK(open_requests_ > 0);
  generations_.erase(generation);
  if (--open_requests_ == 0 && when_idle_) when_idle_->fulfill();
}

RequestTerms Serving::terms(std::string id, const Caller& caller) {
  return {std::move(id), caller.tenant, as_seed(parts_.random_bits()), parts_.wall_time()};
}

Result<std::unique_ptr<Generation>> Serving::start(PreparedRequest request, TimePoint arrived) {
  if (stopped_) return stopping();
  OUTRIDER_TRY(take_off(parts_.clock.now() - arrived, request.prompts));
  log_unknown_fields(request.parsed);
  if (parts_.log_prompts) log_prompts(request);
  const uint64_t first_session = next_session_;
  next_session_ += request.prompts.size();
  RequestMetrics& metrics = parts_.metrics.requests(request.served->name);
  auto generation = std::make_unique<Generation>(
      Generation::Parts{*backend_, parts_.clock, metrics, first_session, arrived},
      std::move(request));
  generations_.insert(generation.get());
  return generation;
}

std::string Serving::new_id(const char* prefix) {
  constexpr char k_digits[] = "0123456789abcdef";
  std::string id = prefix;
  for (int word = 0; word < 2; ++word) {
    uint64_t bits = parts_.random_bits();
    for (int i = 0; i < 16; ++i, bits >>= 4) id += k_digits[bits & 15];
  }
  return id;
}

void Serving::log_unknown_fields(const ParsedRequest& parsed) {
  for (const auto& name : parsed.unknown_fields) {
    if (logged_fields_.size() >= limits::unknown_fields_logged_max) return;
    if (!logged_fields_.insert(name).second) continue;
    parts_.log->warn("unknown request field ignored: {}", to_text(Json(name)));
  }
}

void Serving::log_prompts(const PreparedRequest& request) {
  for (const auto& prompt : request.prompts) {
    std::string text = decode(prompt.prompt, *request.served);
    const size_t bytes = text.size();
    text.resize(utf8_valid_prefix(
        std::string_view(text).substr(0, std::min(bytes, limits::logged_prompt_bytes_max))));
    parts_.log->info("prompt id={} bytes={} text={}", prompt.id, bytes, to_text(Json(text)));
  }
}

RequestScope::RequestScope(Serving& serving, Caller caller, RequestKind kind)
    : serving_(serving),
      caller_(std::move(caller)),
      kind_(kind),
      id_(serving.new_id(kind == RequestKind::chat ? "chatcmpl-" : "cmpl-")),
      created_s_(serving.parts().wall_time().time_since_epoch().count()) {}

kj::Promise<void> RequestScope::start(size_t bytes, Parse parse) {
  if (auto opened = serving_.open_request(); !opened) {
    error_ = opened.error();
    return kj::READY_NOW;
  }
  open_ = true;
  std::function<Result<PreparedRequest>()> prepare =
      [parse = std::move(parse), models = serving_.served(),
       terms = serving_.terms(id_, caller_)]() -> Result<PreparedRequest> {
    auto parsed = parse();
    if (!parsed) return parsed.error();
    return prepare_request(std::move(*parsed), models, terms);
  };
  return serving_.texts()
      .run(caller_.tenant, bytes, std::move(prepare))
      .then([this](kj::Own<Result<PreparedRequest>> prepared) {
        auto started = *prepared ? serving_.start(std::move(**prepared), caller_.arrived)
                                 : Result<std::unique_ptr<Generation>>(prepared->error());
        if (started) {
          generation_ = std::move(*started);
        } else {
          error_ = started.error();
        }
      });
}

RequestScope::~RequestScope() {
  GenerationTotals totals;
  std::optional<Error> error = error_;
  if (generation_) {
    totals = generation_->totals();
    error = generation_->error();
    if (status_ == k_gone && error) status_ = error_reply(*error).status;
  }
  if (open_) serving_.request_ended(generation_.get());
  generation_.reset();
  LogLine line("request");
  line.text("id", id_).text("rid", caller_.request_id);
  if (!caller_.trace_id.empty()) line.text("trace", caller_.trace_id);
  line.text("tenant", caller_.tenant)
      .text("proto", caller_.protocol)
      .text("kind", kind_ == RequestKind::chat ? "chat" : "completion")
      .number("status", status_);
  // Not the message: it may quote what the client sent.
  if (error) line.text("error", to_string(error->code));
  if (error && !error->field.empty()) line.word("param", error->field);
  line.number("prompt_tokens", totals.prompt_tokens)
      .number("cached_tokens", totals.timings.cached.all)
      .number("tokens", totals.completion_tokens)
      .number("draft_n", totals.timings.draft_tokens)
      .number("draft_n_accepted", totals.timings.accepted_tokens)
      .number("moves", totals.timings.moves)
      .milliseconds("ttft_ms", totals.ttft_ms)
      .milliseconds("total_ms", to_ms(serving_.parts().clock.now() - caller_.arrived));
  line.write(serving_.log());
}

}  // namespace outrider::gateway
