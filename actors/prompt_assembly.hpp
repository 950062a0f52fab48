#pragma once

#include <optional>
#include <vector>

#include "base/request.hpp"
#include "base/result.hpp"
#include "schema/messages.hpp"

namespace outrider::actors {

/// Puts a request together from its numbered parts. Holds no more than its begin announced, which
/// its owner has bounded.
class PromptAssembly {
 public:
  explicit PromptAssembly(schema::SubmitBegin begin) : begin_(std::move(begin)) {}

  const schema::SessionHandle& session() const { return begin_.session; }
  const schema::SubmitBegin& begin() const { return begin_; }
  /// `unavailable` if a part is missing or too long: the session submits anew.
  Result<void> add(const schema::PromptPart& part);
  /// The request; `unavailable` if something is missing.
  Result<GenerationRequest> finish();

 private:
  size_t announced() const { return size_t{begin_.prompt_tokens} + begin_.committed_tokens; }

  schema::SubmitBegin begin_;
  std::vector<int32_t> ids_;
  uint32_t parts_ = 0;
};

}  // namespace outrider::actors
