#include "base/log.hpp"

#include <poll.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

namespace outrider {
namespace {

/// stderr for as long as somebody reads it. Actors and the threads of ports log: where a pipe is
/// full they wait once, then lines are lost until it is read again, and the next one says how many.
class BoundedStderr final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override;
  void flush() override;
  void set_pattern(const std::string& pattern) override;
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override;

 private:
  bool is_read();

  std::mutex mutex_;
  uint64_t lost_ = 0;
  spdlog::sinks::stderr_color_sink_st stderr_;
};

// Inside a LogLine, what begins a value and says how it is written in JSON. Never inside values.
constexpr char k_text = '\x1e';
constexpr char k_number = '\x1f';

/// The source "file" of messages that are LogLines: no other message is read as one, whatever
/// bytes it quotes.
constexpr const char* k_log_line = "a LogLine";

bool is_log_line(const spdlog::details::log_msg& message) {
  return message.source.filename == k_log_line;
}

void append(std::string_view text, spdlog::memory_buf_t& out) {
  out.append(text.data(), text.data() + text.size());
}

void append_escaped(std::string_view text, spdlog::memory_buf_t& out) {
  constexpr char k_digits[] = "0123456789abcdef";
  for (const char c : text) {
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
}

void append_quoted(std::string_view text, spdlog::memory_buf_t& out) {
  out.push_back('"');
  append_escaped(text, out);
  out.push_back('"');
}

/// `%*`: the message and its values as members of a JSON object.
class JsonMembers final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    std::string_view rest(message.payload.data(), message.payload.size());
    constexpr char k_kinds[] = {k_text, k_number, '\0'};
    size_t end = is_log_line(message) ? rest.find_first_of(k_kinds) : rest.npos;
    append("\"message\":", out);
    append_quoted(rest.substr(0, end), out);
    while (end != rest.npos) {
      const char kind = rest[end];
      rest.remove_prefix(end + 1);
      end = rest.find_first_of(k_kinds);
      const std::string_view value = rest.substr(0, end);
      const size_t equals = value.find('=');
      out.push_back(',');
      append_quoted(value.substr(0, equals), out);
      out.push_back(':');
      if (kind == k_number) {
        append(value.substr(equals + 1), out);
      } else {
        append_quoted(value.substr(equals + 1), out);
      }
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonMembers>();
  }
};

/// `%*`: the message and its values, separated by spaces.
class PlainValues final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const bool values = is_log_line(message);
    for (const char c : message.payload) {
      out.push_back(values && (c == k_text || c == k_number) ? ' ' : c);
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PlainValues>();
  }
};

void BoundedStderr::log(const spdlog::details::log_msg& message) {
  const std::lock_guard lock(mutex_);
  if (!is_read()) {
    ++lost_;
    return;
  }
  if (const uint64_t lost = std::exchange(lost_, 0); lost > 0) {
    const std::string note = fmt::format("{} lines are lost here: nobody read the log", lost);
    stderr_.log({message.logger_name, spdlog::level::warn, note});
  }
  stderr_.log(message);
}

/// A pipe that can be written to has room for 4096 bytes, which is more than most lines.
bool BoundedStderr::is_read() {
  constexpr int k_patience_ms = 250;
  pollfd log{STDERR_FILENO, POLLOUT, 0};
  int ready = -1;
  do {
    ready = ::poll(&log, 1, lost_ > 0 ? 0 : k_patience_ms);
  } while (ready < 0 && errno == EINTR);
  return ready != 0;  // An error is the write's to find.
}

void BoundedStderr::flush() {
  const std::lock_guard lock(mutex_);
  stderr_.flush();
}

void BoundedStderr::set_pattern(const std::string& pattern) {
  stderr_.set_pattern(pattern);
}

void BoundedStderr::set_formatter(std::unique_ptr<spdlog::formatter> formatter) {
  stderr_.set_formatter(std::move(formatter));
}

}  // namespace

Result<std::shared_ptr<spdlog::logger>> make_logger(const LogOptions& options) {
  const auto level = spdlog::level::from_str(options.level);
  if (level == spdlog::level::off && options.level != "off") {
    return fail(
        ErrorCode::invalid_argument,
        "unknown level \"" + options.level + "\"; use trace, debug, info, warn, error or off",
        "log-level");
  }
  auto logger = std::make_shared<spdlog::logger>("outrider", std::make_shared<BoundedStderr>());
  logger->set_level(level);
  logger->flush_on(spdlog::level::info);
  auto formatter = std::make_unique<spdlog::pattern_formatter>(
      options.json ? spdlog::pattern_time_type::utc : spdlog::pattern_time_type::local);
  if (options.json) {
    formatter->add_flag<JsonMembers>('*').set_pattern(
        R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%*})");
  } else {
    formatter->add_flag<PlainValues>('*').set_pattern("%Y-%m-%d %H:%M:%S.%e %^%L%$ %*");
  }
  logger->set_formatter(std::move(formatter));
  return logger;
}

LogLine::LogLine(std::string_view message) : line_(message) {}

LogLine& LogLine::add(char kind, std::string_view name, std::string_view value) {
  line_ += kind;
  line_ += name;
  line_ += '=';
  for (const char c : value) line_ += c == k_text || c == k_number ? ' ' : c;
  return *this;
}

LogLine& LogLine::text(std::string_view name, std::string_view value) {
  return add(k_text, name, value);
}

LogLine& LogLine::word(std::string_view name, std::string_view value) {
  constexpr size_t k_bytes_max = 128;
  std::string clean(value.substr(0, k_bytes_max));
  for (char& c : clean) c = c > ' ' && c < 0x7F ? c : '?';
  return text(name, clean);
}

LogLine& LogLine::number(std::string_view name, int64_t value) {
  return add(k_number, name, std::to_string(value));
}

LogLine& LogLine::milliseconds(std::string_view name, double value) {
  return add(k_number, name, fmt::format("{:.1f}", value));
}

void LogLine::write(spdlog::logger& logger) const {
  logger.log(spdlog::source_loc{k_log_line, 1, ""}, spdlog::level::info,
             spdlog::string_view_t(line_));
}

std::shared_ptr<spdlog::logger> silent_logger() {
  return std::make_shared<spdlog::logger>("silent",
                                          std::make_shared<spdlog::sinks::null_sink_mt>());
}

}  // namespace outrider
