#pragma once

#include <memory>

#include "gateway/backend.hpp"
#include "schema/handles.hpp"

namespace outrider::gateway {

/// The actors as the gateway sees them: each call is one message to the front desk. The one file of
/// this folder that knows CAF.
std::unique_ptr<Backend> make_caf_bridge(schema::FrontDeskHandle front_desk);

}  // namespace outrider::gateway
