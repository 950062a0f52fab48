#pragma once

#include <spdlog/logger.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace outrider {

struct LogOptions {
  std::string level = "info";  ///< trace, debug, info, warn, error, off
  bool json = false;           ///< one JSON object per line instead of text
};

/// A logger to stderr. Made once by main and handed down by constructor; thread-safe. Lines that
/// nobody reads are lost and counted, and hold nobody up.
Result<std::shared_ptr<spdlog::logger>> make_logger(const LogOptions& options);

/// A message with named values: "request id=a status=200" as text, and in JSON lines a member each.
class LogLine {
 public:
  explicit LogLine(std::string_view message);
  LogLine& text(std::string_view name, std::string_view value);
  /// What a stranger chose: its first 128 bytes, and '?' for all that is not printable ASCII.
  LogLine& word(std::string_view name, std::string_view value);
  LogLine& number(std::string_view name, int64_t value);
  LogLine& milliseconds(std::string_view name, double value);  ///< With one decimal.
  void write(spdlog::logger& logger) const;                    ///< At info.

 private:
  LogLine& add(char kind, std::string_view name, std::string_view value);
  std::string line_;
};

/// A logger that drops everything, for tests and libraries.
std::shared_ptr<spdlog::logger> silent_logger();

}  // namespace outrider
