#include "base/result.hpp"

namespace outrider {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::corrupt:
      return "corrupt";
    case ErrorCode::io:
      return "io";
    case ErrorCode::too_large:
      return "too_large";
    case ErrorCode::overloaded:
      return "overloaded";
    case ErrorCode::unavailable:
      return "unavailable";
    case ErrorCode::unauthenticated:
      return "unauthenticated";
    case ErrorCode::cancelled:
      return "cancelled";
    case ErrorCode::deadline_exceeded:
      return "deadline_exceeded";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

}  // namespace outrider
