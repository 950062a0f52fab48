#pragma once

#include <string>

namespace outrider::gateway {

/// What clients are told before there is a model to serve.
struct NotReady {
  std::string status = "loading";  ///< of /health and /ready
  std::string message = "the model is still loading";
};

}  // namespace outrider::gateway
