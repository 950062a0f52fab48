#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/hash.hpp"
#include "base/result.hpp"

namespace outrider::model {

namespace jinja {
struct Template;
}

/// A model's chat template: messages in, prompt text out, character for character what
/// transformers' `apply_chat_template` gives (trim_blocks, lstrip_blocks, loop controls, its own
/// `tojson`). Templates come from files and messages from clients: nesting, work and output are
/// bounded, and whatever they hold is an Error with a line number, never a crash.
/// Immutable and cheap to copy; any thread, any number at once.
class ChatTemplate {
 public:
  /// Wall time for `strftime_now`, read as the local time of the template.
  using WallTime = std::chrono::sys_seconds;

  /// `corrupt` for a syntax error, `unsupported` for a statement or filter that we do not have.
  static Result<ChatTemplate> parse(std::string_view source, std::string bos_token,
                                    std::string eos_token);
  /// For models without a template: <|im_start|>role … <|im_end|>.
  static ChatTemplate chatml(std::string bos_token = {}, std::string eos_token = "<|im_end|>");

  /// `tools` may be null; `extra` is an object of further variables (or null), which win over the
  /// ones that we set. `invalid_argument` on "messages" when the template refuses them.
  Result<std::string> render(const nlohmann::ordered_json& messages,
                             const nlohmann::ordered_json& tools, bool add_generation_prompt,
                             const nlohmann::ordered_json& extra, WallTime now) const;

  const Digest256& source_digest() const { return source_digest_; }

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Template> program);

  std::shared_ptr<const jinja::Template> program_;
  Digest256 source_digest_{};
  std::string bos_token_;
  std::string eos_token_;
};

}  // namespace outrider::model
