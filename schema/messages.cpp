#include "schema/messages.hpp"

namespace outrider::schema {

void add_messages(caf::actor_system_config& config) {
  config.add_message_types<caf::id_block::outrider>();
}

}  // namespace outrider::schema
