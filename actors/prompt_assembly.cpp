#include "actors/prompt_assembly.hpp"

namespace outrider::actors {

Result<void> PromptAssembly::add(const schema::PromptPart& part) {
  if (part.part != parts_ || ids_.size() + part.ids.size() > announced()) {
    return fail(ErrorCode::unavailable, "a part of the prompt was lost on the way");
  }
  ++parts_;
  ids_.insert(ids_.end(), part.ids.begin(), part.ids.end());
  return {};
}

Result<GenerationRequest> PromptAssembly::finish() {
  if (parts_ != begin_.parts || ids_.size() != announced()) {
    return fail(ErrorCode::unavailable, "a part of the prompt was lost on the way");
  }
  GenerationRequest request = schema::from_wire(begin_.request);
  request.committed.assign(ids_.begin() + begin_.prompt_tokens, ids_.end());
  ids_.resize(begin_.prompt_tokens);
  request.prompt = std::move(ids_);
  return request;
}

}  // namespace outrider::actors
