#include "schema/exception_text.hpp"

#include <string_view>

namespace outrider::schema {

std::string reason_of(const kj::Exception& exception) {
  // KJ writes "::bind(sockfd, &addr): Address already in use; toString() = 127.0.0.1:8080".
  std::string_view text = exception.getDescription().cStr();
  text = text.substr(0, text.find("; "));
  constexpr std::string_view k_call_ends = "): ";
  if (const size_t call = text.rfind(k_call_ends); call != std::string_view::npos) {
    text.remove_prefix(call + k_call_ends.size());
  }
  return std::string(text);
}

}  // namespace outrider::schema
