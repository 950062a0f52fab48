#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/request.hpp"
#include "model/stopping.hpp"

namespace outrider::sim::cluster {

/// One choice of a request as every engine of a model computes it: a pure function of what the
/// exactness contract allows, so that any two are twins. Where drafts have a say in what is drawn
/// each attempt draws other tokens, and the token says whose it is.
class Answer {
 public:
  /// `twist`: of which model.
  Answer(const GenerationRequest& request, uint32_t choice, uint64_t twist);

  /// The next token's id, as the attempt of this generation draws it.
  int32_t draw(const GenerationRequest& request, uint32_t generation) const;
  /// That token, as it is told.
  TokenOut told(const GenerationRequest& request, int32_t id) const;
  /// It is the next one, now or of an earlier attempt.
  void commit(const GenerationRequest& request, int32_t id);
  uint32_t length() const { return length_; }
  /// Once the last of its tokens is committed.
  const std::optional<Finish>& finish() const { return finish_; }

  /// Who drew it; 0 where it is the same for all.
  static uint32_t generation_of(int32_t id) { return static_cast<uint32_t>(id) >> k_id_bits; }
  /// What it would be if nobody had a say in it.
  static int32_t plain(int32_t id) { return id & ((1 << k_id_bits) - 1); }
  /// Of an output's text.
  static std::string text_of(int32_t id);
  /// It does not depend on the seed: a choice that goes on has another one.
  static TokenOut prompt_token(const GenerationRequest& request, uint32_t index, uint64_t twist);

 private:
  static constexpr uint32_t k_id_bits = 16;

  uint32_t choice_;
  uint64_t twist_;
  uint32_t length_ = 0;
  std::optional<model::StopMatcher> matcher_;
  std::optional<Finish> finish_;
};

}  // namespace outrider::sim::cluster
