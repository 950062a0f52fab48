#include "tools/server_json.hpp"

#include <algorithm>
#include <cmath>

#include "tools/shown.hpp"

namespace outrider::tools {

const nlohmann::json& member_of(const nlohmann::json& object, const char* key) {
  static const nlohmann::json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

std::optional<std::string> error_of(const nlohmann::json& body) {
  const nlohmann::json& error = member_of(body, "error");
  if (error.is_null()) return std::nullopt;
  const nlohmann::json& words = error.is_string() ? error : member_of(error, "message");
  std::string text = words.is_string() ? words.get<std::string>() : "";
  return shown(text.empty() ? error.dump() : text);
}

double rounded(double value) {
  return std::round(value * 1e3) / 1e3;
}

uint32_t count_of(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = member_of(object, key);
  if (!value.is_number_unsigned()) return 0;
  return static_cast<uint32_t>(std::min<uint64_t>(value.get<uint64_t>(), UINT32_MAX));
}

double number_of(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = member_of(object, key);
  return value.is_number() ? value.get<double>() : 0;
}

std::string text_of(const nlohmann::json& object, const char* key, const char* otherwise) {
  const nlohmann::json& value = member_of(object, key);
  return value.is_string() ? value.get<std::string>() : otherwise;
}

}  // namespace outrider::tools
