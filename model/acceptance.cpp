#include "model/acceptance.hpp"

namespace outrider::model {

void Acceptance::count(HintSource source, uint8_t confidence, bool came_true) {
  Class& of = classes_[index(source, confidence)];
  of.seen = of.seen * decay_ + 1;
  of.came_true = of.came_true * decay_ + (came_true ? 1 : 0);
}

float Acceptance::probability(HintSource source, uint8_t confidence, float before,
                              float weight) const {
  const Class& of = classes_[index(source, confidence)];
  return (weight * before + of.came_true) / (weight + of.seen);
}

}  // namespace outrider::model
