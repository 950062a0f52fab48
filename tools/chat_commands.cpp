#include "tools/chat_commands.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <sstream>

#include "base/limits.hpp"
#include "base/regular_file.hpp"
#include "base/utf8.hpp"

namespace outrider::tools {
namespace {

constexpr char k_help[] =
    "/help                 this list\n"
    "/reset                forget the conversation\n"
    "/stats                tokens and speed of the last answer\n"
    "/set                  the sampling settings\n"
    "/set NAME VALUE       e.g. /set temperature 0.7, /set stop [\"\\n\\n\", \"END\"]\n"
    "/quit                 leave (also Ctrl-D); Ctrl-C stops an answer\n";

/// As many tokens as the context leaves.
constexpr char k_rest[] = "rest";

/// A number as people write it.
template <class T>
std::string number(T value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

/// Text as it stands, or a JSON list of texts; nothing takes all stops away.
bool parse_stop(const std::string& text, std::vector<std::string>& out) {
  std::vector<std::string> stops;
  if (text.starts_with('[')) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_array()) return false;
    for (const auto& entry : json) {
      if (!entry.is_string()) return false;
      stops.push_back(entry.get<std::string>());
    }
  } else if (!text.empty()) {
    stops.push_back(text);
  }
  if (stops.size() > limits::stop_strings_max) return false;
  for (const std::string& stop : stops) {
    if (stop.empty() || stop.size() > limits::stop_string_bytes_max || !utf8_valid(stop)) {
      return false;
    }
  }
  out = std::move(stops);
  return true;
}

/// What /set knows.
struct Entry {
  const char* name;
  bool (*take)(SamplingFlags&, const std::string&);
  std::string (*show)(const SamplingFlags&);
  std::string (*expected)();
};

#define OUTRIDER_NUMBER(name, field, range)                                                    \
  {                                                                                            \
    name,                                                                                      \
        [](SamplingFlags& s, const std::string& text) {                                        \
          return parse_number(text, range, s.field);                                           \
        },                                                                                     \
        [](const SamplingFlags& s) { return number(s.field); }, [] { return describe(range); } \
  }

constexpr Entry k_entries[] = {
    OUTRIDER_NUMBER("temperature", params.temperature, ranges::temperature),
    OUTRIDER_NUMBER("top_k", params.top_k, ranges::top_k),
    OUTRIDER_NUMBER("top_p", params.top_p, ranges::top_p),
    OUTRIDER_NUMBER("min_p", params.min_p, ranges::min_p),
    OUTRIDER_NUMBER("repetition_penalty", params.repetition_penalty, ranges::repetition_penalty),
    OUTRIDER_NUMBER("presence_penalty", params.presence_penalty, ranges::presence_penalty),
    OUTRIDER_NUMBER("frequency_penalty", params.frequency_penalty, ranges::frequency_penalty),
    OUTRIDER_NUMBER("seed", params.seed, ranges::seed),
    {"max_tokens",
     [](SamplingFlags& s, const std::string& text) {
       if (text != k_rest) return parse_number(text, k_answer_tokens, s.stop.max_tokens);
       s.stop.max_tokens = 0;
       return true;
     },
     [](const SamplingFlags& s) {
       return s.stop.max_tokens == 0 ? std::string(k_rest) : number(s.stop.max_tokens);
     },
     [] { return describe(k_answer_tokens) + " or " + k_rest; }},
    {"stop",
     [](SamplingFlags& s, const std::string& text) {
       return parse_stop(text, s.stop.stop_strings);
     },
     [](const SamplingFlags& s) { return nlohmann::json(s.stop.stop_strings).dump(); },
     [] {
       return "text or a JSON list of up to " + std::to_string(limits::stop_strings_max) +
              " texts, each of 1 to " + std::to_string(limits::stop_string_bytes_max) + " bytes";
     }},
};

#undef OUTRIDER_NUMBER

}  // namespace

std::string history_path(const char* chosen, const char* home) {
  std::string path = home == nullptr ? "" : std::string(home) + "/.outrider_history";
  if (chosen != nullptr) path = chosen;
  const auto file = RegularFile::open(path);
  const bool is_other = !file && file.error().code == ErrorCode::invalid_argument;
  return is_other ? "" : path;
}

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
  words >> verb >> name >> std::ws;
  std::getline(words, value);
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
  if (!name.empty()) {
    const auto found = std::find_if(std::begin(k_entries), std::end(k_entries),
                                    [&](const Entry& entry) { return name == entry.name; });
    if (found == std::end(k_entries)) return "unknown setting \"" + name + "\"; /set lists them";
    if (!found->take(sampling, value))
      return name + ": \"" + value + "\" is not " + found->expected();
  }
  std::string list;
  for (const Entry& entry : k_entries) {
    list += std::string(list.empty() ? "" : ", ") + entry.name + " " + entry.show(sampling);
  }
  return list;
}

std::string Conversation::describe_stats() const {
  if (answers_ == 0) return "no answer yet";
  const auto rate = [](uint32_t tokens, double ms) { return ms > 0 ? tokens * 1e3 / ms : 0.0; };
  const uint32_t cached = std::min(last_.cached_tokens, last_.prompt_tokens);
  const uint32_t computed = last_.prompt_tokens - cached;
  char text[256];
  std::snprintf(text, sizeof(text),
                "prompt %u tokens: %u cached, %u computed in %.0f ms (%.1f/s), answer %u tokens in "
                "%.0f ms (%.1f/s), %u of %u drafted ones taken, finish %s, %zu messages",
                last_.prompt_tokens, cached, computed, last_.prefill_ms,
                rate(computed, last_.prefill_ms), last_.answer_tokens, last_.decode_ms,
                rate(last_.answer_tokens, last_.decode_ms), last_.accepted_draft_tokens,
                last_.draft_tokens, last_.finish_reason.c_str(), messages.size());
  return text;
}

}  // namespace outrider::tools
