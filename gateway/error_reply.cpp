#include "gateway/error_reply.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace outrider::gateway {
namespace {

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
      return 400;
    case ErrorCode::unauthenticated:
      return 401;
    case ErrorCode::not_found:
      return 404;
    case ErrorCode::too_large:
      return 413;
    case ErrorCode::overloaded:
      return 429;
    case ErrorCode::cancelled:
      return 499;  // nginx's number for a client that went away; nobody is there to read it
    case ErrorCode::unavailable:
      return 503;
    case ErrorCode::deadline_exceeded:
      return 504;
    case ErrorCode::corrupt:
    case ErrorCode::io:
    case ErrorCode::internal:
      return 500;
  }
  return 500;
}

std::string type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "unavailable_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "internal_error";
  }
}

}  // namespace

ErrorReply error_reply(const Error& error, uint32_t retry_after_ms) {
  ErrorReply reply = error_reply(status_of(error.code), error.message);
  if (error.code == ErrorCode::unsupported) reply.type = "not_supported_error";
  reply.param = error.field;
  if (error.code == ErrorCode::not_found && error.field == "model") {
    reply.type = "invalid_request_error";  // as OpenAI says it
    reply.code = "model_not_found";
  }
  if (retry_after_ms > 0) reply.retry_after_s = std::max(1u, (retry_after_ms + 999) / 1000);
  return reply;
}

ErrorReply error_reply(int status, std::string message) {
  ErrorReply reply{status, type_of(status), std::move(message), {}, 0};
  if (status == 429 || status == 503) reply.retry_after_s = 1;
  return reply;
}

std::string error_body(const ErrorReply& reply) {
  using nlohmann::ordered_json;
  ordered_json error = {{"message", reply.message}, {"type", reply.type}};
  error["param"] = reply.param.empty() ? ordered_json() : ordered_json(reply.param);
  error["code"] = reply.code.empty() ? ordered_json(reply.status) : ordered_json(reply.code);
  const ordered_json body = {{"error", std::move(error)}};
  return body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

const char* status_text(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return status < 500 ? "Error" : "Internal Server Error";
  }
}

}  // namespace outrider::gateway
