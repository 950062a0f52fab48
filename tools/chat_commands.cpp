#include "tools/chat_commands.hpp"

#include <cstdio>
#include <sstream>

namespace outrider::tools {
namespace {

constexpr char k_help[] =
    "/help                 this list\n"
    "/reset                forget the conversation\n"
    "/stats                tokens and speed of the last answer\n"
    "/set                  the sampling settings\n"
    "/set NAME VALUE       e.g. /set temperature 0.7\n"
    "/quit                 leave (also Ctrl-D); Ctrl-C stops an answer\n";

/// Parses the whole of `text` as a number inside [low, high].
template <class T>
bool parse_in(const std::string& text, double low, double high, T& out) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= low && value <= high)) return false;
  const T converted = static_cast<T>(value);
  if (std::is_integral_v<T> && static_cast<double>(converted) != value) return false;
  out = converted;
  return true;
}

}  // namespace

Conversation::Conversation(std::string system_message, const SamplingFlags& flags)
    : sampling(flags), system_(std::move(system_message)) {
  reset();
}

void Conversation::reset() {
  messages = nlohmann::ordered_json::array();
  if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
}

void Conversation::add_user(const std::string& text) {
  messages.push_back({{"role", "user"}, {"content", text}});
}

void Conversation::add_answer(const std::string& text, const ChatStats& stats) {
  messages.push_back({{"role", "assistant"}, {"content", text}});
  last_ = stats;
  ++answers_;
}

void Conversation::drop_last() {
  messages.erase(messages.size() - 1);
}

Conversation::Reply Conversation::command(const std::string& line) {
  std::istringstream words(line);
  std::string verb;
  std::string name;
  std::string value;
  words >> verb >> name >> value;
  if (verb == "/quit" || verb == "/exit") return {"", true};
  if (verb == "/help") return {k_help};
  if (verb == "/reset") {
    reset();
    return {"conversation forgotten"};
  }
  if (verb == "/stats") return {describe_stats()};
  if (verb == "/set") return {set(name, value)};
  return {"unknown command " + verb + "; /help lists them"};
}

std::string Conversation::set(const std::string& name, const std::string& value) {
  SamplingParams& s = sampling.params;
  if (!name.empty()) {
    const bool known = name == "temperature" || name == "top_k" || name == "top_p" ||
                       name == "min_p" || name == "seed" || name == "max_tokens" ||
                       name == "repetition_penalty";
    if (!known) return "unknown setting \"" + name + "\"; /set lists them";
    const bool good =
        (name == "temperature" && parse_in(value, 0, 100, s.temperature)) ||
        (name == "top_k" && parse_in(value, 0, 1 << 20, s.top_k)) ||
        (name == "top_p" && parse_in(value, 0, 1, s.top_p)) ||
        (name == "min_p" && parse_in(value, 0, 1, s.min_p)) ||
        (name == "seed" && parse_in(value, 0, 9e15, s.seed)) ||
        (name == "max_tokens" && parse_in(value, 1, 1 << 24, sampling.stop.max_tokens)) ||
        (name == "repetition_penalty" && parse_in(value, 0.01, 100, s.repetition_penalty));
    if (!good) return name + ": \"" + value + "\" is not a value it can take";
  }
  std::ostringstream out;
  out << "temperature " << s.temperature << ", top_k " << s.top_k << ", top_p " << s.top_p
      << ", min_p " << s.min_p << ", repetition_penalty " << s.repetition_penalty << ", seed "
      << s.seed << ", max_tokens " << sampling.stop.max_tokens;
  return out.str();
}

std::string Conversation::describe_stats() const {
  if (answers_ == 0) return "no answer yet";
  const auto rate = [](uint32_t tokens, double ms) { return ms > 0 ? tokens * 1e3 / ms : 0.0; };
  char text[200];
  std::snprintf(text, sizeof(text),
                "prompt %u tokens in %.0f ms (%.0f/s), answer %u tokens in %.0f ms (%.1f/s), "
                "finish %s, %zu messages",
                last_.prompt_tokens, last_.prefill_ms, rate(last_.prompt_tokens, last_.prefill_ms),
                last_.answer_tokens, last_.decode_ms, rate(last_.answer_tokens, last_.decode_ms),
                last_.finish_reason.c_str(), messages.size());
  return text;
}

}  // namespace outrider::tools
