#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/step_costs.hpp"

namespace outrider::model {

/// Step costs that follow what steps really take: what was measured at the start, times the median
/// of how much longer recent steps of so many rows took. A machine that others use is slow at
/// times: each step is compared with the one before, and what slows all rows alike changes no cost
/// next to another. All of them follow it slowly. Plain value; an observation costs next to
/// nothing, each eighth one a pass over the table: some 50 us.
class CostRefresh {
 public:
  CostRefresh() = default;
  explicit CostRefresh(const StepCosts& measured);

  /// As steps were when rows last ran, however long ago: what was found to be dear stays so until
  /// somebody tries. Empty if nothing was measured.
  const StepCosts& costs() const { return costs_; }
  /// The same where steps of late tell, and elsewhere as cheap as may be: as measured, for this
  /// machine may have been slow when rows were last tried, but no more for a row than is likely,
  /// for it may have been slow when they were measured.
  const StepCosts& hoped() const { return hoped_; }
  /// A step of these sequences, each row sampled, took `time`.
  void observe(std::span<const StepShare> shares, Duration time);
  /// How much longer than by `costs` the last step took, of those of which enough is known.
  double pace() const { return pace_; }
  /// The same on average of late.
  double usual_pace() const { return std::exp(log_pace_); }
  /// Whether steps of about so many rows ran often enough of late.
  bool knows_about(uint32_t rows) const;
  /// The same of no fewer, and of no more.
  bool knows(uint32_t rows) const;

 private:
  static constexpr size_t k_window = 15;
  /// Steps of so many rows.
  struct Cell {
    std::array<float, k_window> factors{};
    std::array<uint64_t, k_window> seen_at{};  ///< observations so far
    size_t count = 0;                          ///< in all
    size_t from = 0, to = 0;                   ///< Cells of about as many rows, itself included.
    size_t size() const { return count < k_window ? count : k_window; }
  };
  /// Whom to believe where cells contradict each other.
  struct Trust {
    std::vector<size_t> order;  ///< The cells, the most trusted first.
    /// Of each the next ones that are trusted more; none: the number of cells.
    std::vector<size_t> left, right;
    std::vector<bool> is_known;  ///< By steps of late.
  };
  bool is_late(const Cell& cell, size_t i) const;
  size_t late_ones(size_t from, size_t to) const;
  std::vector<size_t> counted(bool late_only) const;
  void gather(const Cell& cell, bool late_only);
  std::optional<double> median_of_gathered();
  std::optional<double> median_of_late(const Cell& cell);
  std::optional<double> of_cell(size_t cell, bool late_only, std::span<const size_t> counted);
  std::vector<double> factors(bool late_only);
  Trust trust() const;
  static void reconcile(std::span<const double> slower, const Trust& trust,
                        std::span<Duration> inout);
  StepCosts scaled(bool late_only, const Trust& trust);
  size_t cell_of(uint32_t rows) const;
  void follow_pace();
  void refresh();

  StepCosts measured_;
  StepCosts costs_;
  StepCosts hoped_;
  std::vector<Cell> cells_;  ///< measured_.rows[i], or less than that and more than the one before
  uint64_t observations_ = 0;
  /// How much longer than it is known to a step takes just now, by the last one of which enough is
  /// known. Else rows that ran in slow moments only would be taken to be dear.
  double pace_ = 1;
  double log_pace_ = 0;     ///< Its logarithm, on average of late.
  size_t last_ = SIZE_MAX;  ///< Cell of the last step: one that repeats it tells only the pace.
  std::vector<float> gathered_;  // Work space.
};

}  // namespace outrider::model
