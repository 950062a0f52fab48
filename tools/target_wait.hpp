#pragma once

#include <kj/async.h>
#include <spdlog/logger.h>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <memory>
#include <string>

#include "schema/handles.hpp"
#include "schema/messages.hpp"

namespace outrider::tools {

/// Looks at a router's workers, each heartbeat, for a first target that serves a model by that name
/// and tokenizer. Says once of each other target why it is not the one.
class TargetWait {
 public:
  struct Wanted {
    std::string model;
    std::string tokenizer;  ///< fingerprint, as Announce has it
  };
  TargetWait(caf::actor_system& system, const schema::RouterHandle& router, Wanted wanted,
             std::shared_ptr<spdlog::logger> log);
  ~TargetWait();
  TargetWait(const TargetWait&) = delete;
  TargetWait& operator=(const TargetWait&) = delete;

  /// Once, on the thread that made it.
  kj::Promise<schema::Announce> found() { return kj::mv(found_); }

 private:
  kj::Promise<schema::Announce> found_ = nullptr;
  caf::actor looker_;
};

}  // namespace outrider::tools
