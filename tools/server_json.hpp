#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

/// Reads the JSON of a server of any kind: no member need be there, or have the type that it
/// should.
namespace outrider::tools {

/// The words of a body's "error", a text or an object with a "message", as `shown`; none if there
/// is no error. Never empty.
std::optional<std::string> error_of(const nlohmann::json& body);

/// 0 for what is no count.
uint32_t count_of(const nlohmann::json& object, const char* key);
/// 0 for what is no number.
double number_of(const nlohmann::json& object, const char* key);
std::string text_of(const nlohmann::json& object, const char* key, const char* otherwise = "");
/// Null for what is not there.
const nlohmann::json& member_of(const nlohmann::json& object, const char* key);

/// With three decimals, so that JSON does not have seventeen digits.
double rounded(double value);

}  // namespace outrider::tools
