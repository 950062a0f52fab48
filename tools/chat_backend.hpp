#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "tools/sampling_flags.hpp"
#include "tools/settings.hpp"

namespace outrider::tools {

/// What one answer took.
struct ChatStats {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  ///< of the prompt
  uint32_t answer_tokens = 0;
  uint32_t draft_tokens = 0;           ///< that were verified
  uint32_t accepted_draft_tokens = 0;  ///< of these, the answer's
  double prefill_ms = 0;
  double decode_ms = 0;
  std::string finish_reason;
};

/// Answers a conversation, from a model in this process or from a server.
class ChatBackend {
 public:
  virtual ~ChatBackend() = default;

  virtual std::string description() const = 0;
  /// Streams the answer to the last of `messages` ([{role, content}, …]); `stopped` is asked often.
  virtual Result<ChatStats> answer(const nlohmann::ordered_json& messages,
                                   const SamplingFlags& sampling,
                                   const std::function<void(std::string_view)>& on_text,
                                   const std::function<bool()>& stopped) = 0;
};

Result<std::unique_ptr<ChatBackend>> local_chat(const Settings& settings);
/// `model`: by the name that the server has for it; empty: its first one.
Result<std::unique_ptr<ChatBackend>> remote_chat(const std::string& url, const std::string& api_key,
                                                 const std::string& model = {});

}  // namespace outrider::tools
