#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "model/sampler.hpp"

/// One row of logits as the sampler's inner loops see it. Most tokens are out of the question, so
/// the highest logit of each block of 64 is found once and decides which blocks are looked at.
namespace outrider::model {

/// What turns a logit into a score, a log-probability but for a constant.
struct ScoreScale {
  float highest = 0;
  float temperature = 1;

  float score(float logit) const { return (logit - highest) / temperature; }
};

/// A row without NaN whose values are below infinity. Refers to the logits and the caller's memory.
class RowScan {
 public:
  RowScan() = default;
  RowScan(std::span<const float> logits, std::vector<float>& memory);

  std::span<const float> logits() const { return logits_; }
  bool all_finite() const { return all_finite_; }
  float highest() const;

  /// Lowest id among the highest; -1 when all are -infinity.
  int32_t argmax() const;

  /// How many are higher than the token's logit, or as high with a lower id.
  uint32_t count_ahead(int32_t id) const;

  /// A value that at least `count` of the row reach; -infinity when that is all that can be said.
  float reached_by(size_t count) const;

  /// Each token whose score is at least `least` and not -infinity, in order of id.
  void collect(const ScoreScale& scale, float least,
               std::vector<SampleScratch::Candidate>& out) const;

  /// LaneSum of exp(score).
  double sum_of_exponentials(const ScoreScale& scale) const;

  /// argmax of score + Gumbel noise, lowest id wins a tie; -infinity is never chosen.
  int32_t gumbel_argmax(const ScoreScale& scale, uint64_t seed, uint64_t position) const;

 private:
  std::span<const float> block(size_t index) const;

  std::span<const float> logits_;
  std::span<const float> peaks_;  ///< highest of each block
  std::span<float> spare_;        ///< room for as many
  bool all_finite_ = false;
};

/// Sum of doubles by 16 lanes (lane = id mod 16) that are added in ascending order.
class LaneSum {
 public:
  void add(int32_t id, float value) { lanes_[id % 16] += double{value}; }
  /// Values of ids 0 … 15, of 16 … 31, and so on.
  void add_row(std::span<const float> values);
  double total() const;

 private:
  double lanes_[16] = {};
};

/// The best so far of score + Gumbel noise. Noise is computed only where it could win.
struct GumbelWinner {
  float value = 0;
  int32_t id = -1;

  void see(float score, uint32_t bits, int32_t candidate);
};

}  // namespace outrider::model
