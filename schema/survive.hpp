#pragma once

#include <caf/error.hpp>
#include <caf/scheduled_actor.hpp>
#include <functional>
#include <memory>
#include <utility>

namespace outrider::schema {

/// A message that its receiver does not know (of another version, or damaged on its way) must end
/// neither end. CAF answers it with an error, and an actor that gets one and has no handler for it
/// quits. `tell` hears the first one; what was lost is seen by time-outs, as any loss.
inline void survive_unknown_messages(caf::scheduled_actor* self,
                                     std::function<void(const caf::error&)> tell = {}) {
  self->set_default_handler(caf::drop);
  const auto told = std::make_shared<bool>(false);
  self->set_error_handler([tell = std::move(tell), told](caf::error& error) {
    if (tell && !std::exchange(*told, true)) tell(error);
  });
}

}  // namespace outrider::schema
