#pragma once

#include <spdlog/logger.h>

#include <memory>
#include <string>

#include "base/result.hpp"

namespace outrider {

struct LogOptions {
  std::string level = "info";  ///< trace, debug, info, warn, error, off
  bool json = false;           ///< one JSON object per line instead of text
};

/// A logger to stderr. Made once by main and handed down by constructor; thread-safe.
Result<std::shared_ptr<spdlog::logger>> make_logger(const LogOptions& options);

/// A logger that drops everything, for tests and libraries.
std::shared_ptr<spdlog::logger> silent_logger();

}  // namespace outrider
