#pragma once

#include <kj/async.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace outrider::gateway {

/// What POST /reset_prefix_cache asks for.
struct CacheReset {
  std::optional<std::string> tenant;  ///< none: all tenants
  bool cold = false;                  ///< stored records, too
};

/// Blocks of these tenants.
struct CacheResetDone {
  uint32_t blocks = 0;                  ///< forgotten by the KV pool
  uint32_t blocks_in_use = 0;           ///< that requests hold: they stay
  std::optional<uint64_t> cold_blocks;  ///< dropped by the store; none: not asked for
};

/// Called once, on any thread; dropped uncalled where the server stops first.
using CacheResetAnswer = std::function<void(Result<CacheResetDone>)>;
/// Returns at once.
using ResetCache = std::function<void(CacheReset, CacheResetAnswer)>;

/// Resets, one at a time: whoever asks in a loop costs others no more than that. KJ thread.
class CacheResets {
 public:
  explicit CacheResets(ResetCache reset) : reset_(std::move(reset)) {}

  /// Errors: overloaded (one is under way), unavailable, and what the reset itself fails with.
  kj::Promise<Result<CacheResetDone>> start(CacheReset what);
  static kj::Promise<Result<CacheResetDone>> refuse(Error why);

 private:
  struct Pending;
  ResetCache reset_;
  std::weak_ptr<Pending> under_way_;
};

/// The body of POST /reset_prefix_cache: nothing, or an object. Whether `cold` is set.
Result<bool> read_cache_reset(const std::string& body);

}  // namespace outrider::gateway
