#include "model/cost_refresh.hpp"

#include <algorithm>
#include <cmath>

namespace outrider::model {
namespace {

constexpr uint64_t k_refresh_every = 8;
/// Fewer say nothing.
constexpr size_t k_samples_min = 5;
/// Older ones are of another load: what was too dear then may be tried again.
constexpr uint64_t k_forget_after = 1024;
constexpr float k_factor_min = 0.25f;
constexpr float k_factor_max = 64.0f;
/// What is left at least of what rows were measured to add. Two medians that pass each other by
/// chance would make them free, and by the last two go all steps beyond the table: of many
/// sequences, where hints that are next to never true would be verified by the hundred.
constexpr double k_growth_left = 0.5;

Duration times(Duration time, double factor) {
  return Duration(static_cast<Duration::rep>(static_cast<double>(time.count()) * factor));
}

}  // namespace

CostRefresh::CostRefresh(const StepCosts& measured)
    : measured_(measured), costs_(measured), of_rows_(measured.rows.size()) {}

void CostRefresh::add(Recent& recent, float factor, uint64_t at) {
  recent.factors[recent.count % k_window] = factor;
  recent.seen_at[recent.count % k_window] = at;
  ++recent.count;
}

double CostRefresh::median(const Recent& recent, double otherwise) const {
  std::array<float, k_window> factors{};
  size_t count = 0;
  for (size_t i = 0; i < std::min(recent.count, k_window); ++i) {
    if (observations_ - recent.seen_at[i] < k_forget_after) factors[count++] = recent.factors[i];
  }
  if (count < k_samples_min) return otherwise;
  const auto middle = factors.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(factors.begin(), middle, factors.begin() + static_cast<std::ptrdiff_t>(count));
  return double{*middle};
}

void CostRefresh::observe(std::span<const StepShare> shares, Duration time) {
  if (measured_.rows.empty()) return;
  uint32_t rows = 0;
  for (const StepShare& share : shares) rows += share.rows;
  const Duration expected = measured_.step(shares);
  if (expected.count() <= 0 || time.count() <= 0) return;
  const float factor =
      std::clamp(static_cast<float>(time.count()) / static_cast<float>(expected.count()),
                 k_factor_min, k_factor_max);
  add(of_rows_[nearest(rows)], factor, observations_);
  add(of_all_, factor, observations_);
  if (++observations_ % k_refresh_every == 0) refresh();
}

bool CostRefresh::knows(uint32_t rows) const {
  return of_rows_.empty() || median(of_rows_[nearest(rows)], 0) > 0;
}

size_t CostRefresh::nearest(uint32_t rows) const {
  size_t at = 0;
  while (at + 1 < measured_.rows.size() && 2 * rows > measured_.rows[at] + measured_.rows[at + 1]) {
    ++at;
  }
  return at;
}

/// Rows of which nothing is known lately are as much slower as those around them of which there is,
/// or else as steps are lately: so what was measured in a slow moment is put right by a few steps,
/// and a machine that is slower than at the start makes no draft look cheap.
std::vector<double> CostRefresh::factors() const {
  std::vector<uint32_t> known;
  std::vector<double> of_known;
  for (size_t i = 0; i < of_rows_.size(); ++i) {
    const double factor = median(of_rows_[i], 0);
    if (factor == 0) continue;
    known.push_back(measured_.rows[i]);
    of_known.push_back(factor);
  }
  if (known.empty()) return std::vector<double>(of_rows_.size(), median(of_all_, 1));
  std::vector<double> out;
  for (const uint32_t rows : measured_.rows) {
    const auto right = static_cast<size_t>(std::ranges::lower_bound(known, rows) - known.begin());
    const size_t from = right == 0 ? 0 : right - 1;
    const size_t to = std::min(right, known.size() - 1);
    const double part =
        from == to ? 0 : (double{1} * rows - known[from]) / (double{1} * known[to] - known[from]);
    out.push_back(std::lerp(of_known[from], of_known[to], part));
  }
  return out;
}

void CostRefresh::refresh() {
  const std::vector<double> slower = factors();
  const size_t width = measured_.rows.size();
  for (size_t i = 0; i < width; ++i) {
    for (size_t at = i; at < measured_.times.size(); at += width) {
      costs_.times[at] = times(measured_.times[at], slower[i]);
      if (i > 0) {
        const Duration growth = measured_.times[at] - measured_.times[at - 1];
        const double left = k_growth_left * std::min(slower[i], slower[i - 1]);
        costs_.times[at] = std::max(costs_.times[at], costs_.times[at - 1] + times(growth, left));
      }
      // As measured: never less than with a shorter context.
      if (at >= width) costs_.times[at] = std::max(costs_.times[at], costs_.times[at - width]);
    }
  }
}

}  // namespace outrider::model
