#include "base/log.hpp"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

namespace outrider {
namespace {

/// `%*`: the message as the inside of a JSON string.
class JsonEscaped final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    for (const char c : message.payload) append(c, out);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonEscaped>();
  }

 private:
  static void append(char c, spdlog::memory_buf_t& out) {
    static constexpr char k_digits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (byte < 0x20) {
      const char escaped[] = {'\\', 'u', '0', '0', k_digits[byte >> 4], k_digits[byte & 15]};
      out.append(escaped, escaped + sizeof(escaped));
    } else {
      out.push_back(c);
    }
  }
};

}  // namespace

Result<std::shared_ptr<spdlog::logger>> make_logger(const LogOptions& options) {
  const auto level = spdlog::level::from_str(options.level);
  if (level == spdlog::level::off && options.level != "off") {
    return fail(
        ErrorCode::invalid_argument,
        "unknown level \"" + options.level + "\"; use trace, debug, info, warn, error or off",
        "log-level");
  }
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("outrider", std::move(sink));
  logger->set_level(level);
  logger->flush_on(spdlog::level::info);
  if (options.json) {
    auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
    formatter->add_flag<JsonEscaped>('*').set_pattern(
        R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","message":"%*"})");
    logger->set_formatter(std::move(formatter));
  } else {
    logger->set_pattern("%H:%M:%S.%e %^%L%$ %v");
  }
  return logger;
}

std::shared_ptr<spdlog::logger> silent_logger() {
  return std::make_shared<spdlog::logger>("silent",
                                          std::make_shared<spdlog::sinks::null_sink_mt>());
}

}  // namespace outrider
