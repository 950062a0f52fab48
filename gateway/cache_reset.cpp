#include "gateway/cache_reset.hpp"

#include <kj/exception.h>

#include <utility>

#include "gateway/json_values.hpp"

namespace outrider::gateway {

namespace {

using CacheResetResult = Result<CacheResetDone>;

/// Of a name that a client made up, in an error.
constexpr size_t k_name_shown_bytes = 64;

}  // namespace

/// An answer on its way from another thread. The last one to hold it ends the wait.
struct CacheResets::Pending {
  kj::Own<kj::CrossThreadPromiseFulfiller<void>> done;
  std::shared_ptr<CacheResetResult> answer =
      std::make_shared<CacheResetResult>(fail(ErrorCode::unavailable, "the server is stopping"));

  explicit Pending(kj::Own<kj::CrossThreadPromiseFulfiller<void>> fulfiller)
      : done(kj::mv(fulfiller)) {}
  // A fulfiller may throw when its loop has ended; there is nobody to tell.
  ~Pending() noexcept {
    [[maybe_unused]] auto ended = kj::runCatchingExceptions([&] {
      auto last = kj::mv(done);
      last->fulfill();
    });
  }
};

kj::Promise<Result<CacheResetDone>> CacheResets::start(CacheReset what) {
  if (!reset_) return refuse(fail(ErrorCode::unavailable, "there is no cache to reset"));
  if (!under_way_.expired()) {
    return refuse(fail(ErrorCode::overloaded, "another reset is under way"));
  }
  auto pair = kj::newPromiseAndCrossThreadFulfiller<void>();
  auto pending = std::make_shared<Pending>(kj::mv(pair.fulfiller));
  under_way_ = pending;
  auto answer = pending->answer;
  reset_(std::move(what), [pending = std::move(pending)](CacheResetResult result) {
    *pending->answer = std::move(result);
  });
  return pair.promise.then([answer] { return std::move(*answer); });
}

kj::Promise<Result<CacheResetDone>> CacheResets::refuse(Error why) {
  return CacheResetResult(std::move(why));
}

Result<bool> read_cache_reset(const std::string& body) {
  if (body.empty()) return false;
  JsonBudget budget;
  auto json = parse_json_body(body, budget);
  if (!json) return json.error();
  if (!json->is_object()) {
    return fail(ErrorCode::invalid_argument,
                "the body must be a JSON object, not " + describe(*json));
  }
  bool cold = false;
  for (const auto& [name, value] : json->items()) {
    if (value.is_null()) continue;
    // What is misspelt would reset less than it should.
    if (name != "cold") {
      const std::string field = name.substr(0, k_name_shown_bytes);
      return invalid(field, field + " is not known here; cold is");
    }
    OUTRIDER_TRY(bool_into(value, name, cold));
  }
  return cold;
}

}  // namespace outrider::gateway
