#include "base/request.hpp"

namespace outrider {

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::deadline_exceeded:
      return "deadline_exceeded";
    case FinishReason::failed:
      return "failed";
  }
  return "unknown";
}

}  // namespace outrider
