#include "gateway/serving.hpp"

#include <chrono>
#include <random>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"
#include "gateway/text.hpp"

namespace outrider::gateway {
namespace {

uint64_t random_bits() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
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
Serving::Serving(Parts parts) : parts_(std::move(parts)), next_session_(random_bits() >> 1) {}

void Serving::set_model(ServedModel served, Backend& backend) {
  OUTRIDER_CHECK(phase_ == Phase::loading);
  served.longest_token_bytes = longest_token_bytes(*served.text.tokenizer);
  served_ = std::make_shared<const ServedModel>(std::move(served));
  backend_ = &backend;
  phase_ = Phase::ready;
}

Result<void> Serving::admit() const {
  if (phase_ == Phase::loading) return fail(ErrorCode::unavailable, "the model is still loading");
  if (phase_ == Phase::draining) return fail(ErrorCode::unavailable, "the server is draining");
  if (open_requests_ >= limits::open_requests_max) {
    return fail(ErrorCode::overloaded,
                "too many requests are open: " + std::to_string(open_requests_));
  }
  return {};
}

Result<std::unique_ptr<Generation>> Serving::start(ParsedRequest parsed, const Caller& caller,
                                                   const std::string& id) {
  OUTRIDER_TRY(admit());
  log_unknown_fields(parsed);
  parsed.generation.id = id;
  parsed.generation.tenant = caller.tenant;
  auto prepared = prepare_request(std::move(parsed), *served_);
  if (!prepared) return prepared.error();
  const uint64_t first_session = next_session_;
  next_session_ += prepared->prompts.size();
  ++open_requests_;
  return std::make_unique<Generation>(
      Generation::Parts{*backend_, parts_.clock, parts_.metrics, first_session},
      std::move(*prepared), served_);
}

void Serving::generation_ended() {
  OUTRIDER_CHECK(open_requests_ > 0);
  --open_requests_;
}

std::string Serving::new_id(const char* prefix) {
  constexpr char k_digits[] = "0123456789abcdef";
  std::string id = prefix;
  for (int word = 0; word < 2; ++word) {
    uint64_t bits = random_bits();
    for (int i = 0; i < 16; ++i, bits >>= 4) id += k_digits[bits & 15];
  }
  return id;
}

int64_t Serving::unix_time_s() const {
  using namespace std::chrono;
  return duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
}

void Serving::log_unknown_fields(const ParsedRequest& parsed) {
  for (const auto& name : parsed.unknown_fields) {
    if (logged_fields_.size() >= limits::unknown_fields_logged_max) return;
    if (!logged_fields_.insert(name).second) continue;
    parts_.log->warn("unknown request field ignored: {}", Json(name).dump());
  }
}

RequestScope::RequestScope(Serving& serving, Caller caller, RequestKind kind)
    : serving_(serving),
      caller_(std::move(caller)),
      kind_(kind),
      id_(serving.new_id(kind == RequestKind::chat ? "chatcmpl-" : "cmpl-")),
      created_s_(serving.unix_time_s()),
      arrived_(serving.parts().clock.now()) {}

Result<void> RequestScope::start(ParsedRequest parsed) {
  auto generation = serving_.start(std::move(parsed), caller_, id_);
  if (!generation) return generation.error();
  generation_ = std::move(*generation);
  return {};
}

RequestScope::~RequestScope() {
  GenerationTotals totals;
  if (generation_) {
    totals = generation_->totals();
    generation_.reset();
    serving_.generation_ended();
  }
  serving_.log().info(
      "request id={} rid={} tenant={} proto={} kind={} status={} prompt_tokens={} tokens={} "
      "ttft_ms={:.1f} total_ms={:.1f}",
      id_, caller_.request_id, caller_.tenant, caller_.protocol,
      kind_ == RequestKind::chat ? "chat" : "completion", status_, totals.prompt_tokens,
      totals.completion_tokens, totals.ttft_ms, to_ms(serving_.parts().clock.now() - arrived_));
}

}  // namespace outrider::gateway
