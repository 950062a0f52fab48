#pragma once

#include <array>
#include <cstdint>

#include "model/hint_trie.hpp"

namespace outrider::model {

/// How often hints came true, by source and by the confidence that they claimed: what turns a claim
/// into a probability. Older observations count less. Plain value.
class Acceptance {
 public:
  /// Weight of an observation when the next of its class comes.
  explicit Acceptance(float decay) : decay_(decay) {}

  void count(HintSource source, uint8_t confidence, bool came_true);
  /// Probability that a hint comes true whose predecessors did; `before` is what is known of it
  /// from elsewhere, worth `weight` observations.
  float probability(HintSource source, uint8_t confidence, float before, float weight) const;

 private:
  static constexpr size_t k_classes = 8;  ///< of confidence
  struct Class {
    float seen = 0;
    float came_true = 0;
  };
  static size_t index(HintSource source, uint8_t confidence) {
    return static_cast<size_t>(source) * k_classes + confidence * k_classes / 256;
  }

  float decay_;
  std::array<Class, k_hint_sources * k_classes> classes_{};
};

}  // namespace outrider::model
