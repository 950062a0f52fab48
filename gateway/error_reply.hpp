#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace outrider::gateway {

/// An error as clients see it, on HTTP and RPC alike.
struct ErrorReply {
  int status = 500;
  std::string type;  ///< OpenAI's words: invalid_request_error, authentication_error, …
  std::string message;
  std::string param;           ///< The field at fault; empty: null on the wire.
  uint32_t retry_after_s = 0;  ///< Header Retry-After; 0: none.
  std::string code = {};       ///< A word for programs; empty: the status.
};

/// `retry_after_ms` as a worker said it; 429 and 503 always get a Retry-After.
ErrorReply error_reply(const Error& error, uint32_t retry_after_ms = 0);
/// For what has no ErrorCode: 404 routes, 405, 415, ….
ErrorReply error_reply(int status, std::string message);

/// {"error":{"message","type","param","code"}}
std::string error_body(const ErrorReply& reply);

/// "Not Found" and so on.
const char* status_text(int status);

}  // namespace outrider::gateway
