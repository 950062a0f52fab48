#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "model/step_costs.hpp"

namespace outrider::model {

/// Step costs that follow what steps really take: what was measured at the start, times the median
/// of how much longer recent steps of about so many rows took. Plain value; an observation costs
/// next to nothing, each eighth one some medians of 15.
class CostRefresh {
 public:
  CostRefresh() = default;
  explicit CostRefresh(const StepCosts& measured);

  /// Empty if nothing was measured.
  const StepCosts& costs() const { return costs_; }
  /// A step of these sequences, each row sampled, took `time`.
  void observe(std::span<const StepShare> shares, Duration time);
  /// Whether steps of about so many rows were observed often enough of late.
  bool knows(uint32_t rows) const;

 private:
  static constexpr size_t k_window = 15;
  struct Recent {
    std::array<float, k_window> factors{};
    std::array<uint64_t, k_window> seen_at{};  ///< observations so far
    size_t count = 0;                          ///< in all
  };
  static void add(Recent& recent, float factor, uint64_t at);
  double median(const Recent& recent, double otherwise) const;
  size_t nearest(uint32_t rows) const;
  std::vector<double> factors() const;
  void refresh();

  StepCosts measured_;
  StepCosts costs_;
  std::vector<Recent> of_rows_;  ///< measured_.rows[i] or near
  Recent of_all_;
  uint64_t observations_ = 0;
};

}  // namespace outrider::model
