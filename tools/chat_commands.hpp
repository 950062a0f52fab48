#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/chat_backend.hpp"
#include "tools/sampling_flags.hpp"

namespace outrider::tools {

/// Where the lines of a chat are kept: what OUTRIDER_HISTORY is (`chosen`), else a file in `home`;
/// empty: nowhere, also where a pipe or a device stands there. Null is a variable that is not set.
std::string history_path(const char* chosen, const char* home);

/// The state of a chat: history, sampling, and the slash commands that change them. No terminal.
struct Conversation {
  Conversation(std::string system_message, const SamplingFlags& flags);

  nlohmann::ordered_json messages;
  SamplingFlags sampling;

  void add_user(const std::string& text);
  void add_answer(const std::string& text, const ChatStats& stats);
  /// Takes back the last message (its answer failed).
  void drop_last();

  struct Reply {
    std::string text;
    bool quit = false;
  };
  /// Runs a line that begins with '/'.
  Reply command(const std::string& line);

 private:
  void reset();
  std::string set(const std::string& name, const std::string& value);
  std::string describe_stats() const;

  std::string system_;
  ChatStats last_;
  uint64_t answers_ = 0;
};

}  // namespace outrider::tools
