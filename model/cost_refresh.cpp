#include "model/cost_refresh.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

namespace outrider::model {
namespace {

constexpr uint64_t k_refresh_every = 8;
/// Fewer say nothing.
constexpr size_t k_samples_min = 5;
/// Older ones are of another load.
constexpr uint64_t k_late = 256;
/// By what share of how much longer steps take, on average of the last 64, costs become dearer each
/// time they are refreshed: all alike, so that they stay near what steps take.
constexpr double k_pace_decay = 1 / 64.0;
constexpr double k_anchor = 1 / 16.0;
/// Steps with so much more or fewer rows are about as many, one row at least.
constexpr uint32_t k_about = 8;
/// A start may be measured while others have nearly all of the machine.
constexpr float k_factor_min = 1 / 64.0f;
constexpr float k_factor_max = 64.0f;
/// What is left at least of what rows were measured to add. Two medians that pass each other by
/// chance would make them free, and by the last two go all steps beyond the table: of many
/// sequences, where hints that are next to never true would be verified by the hundred.
constexpr double k_growth_left = 0.5;
/// The same between rows that ran of late: what is wrong then may be what was measured.
constexpr double k_growth_known = 0.25;
/// No row costs that much of a step of one, which has read the weights already: that was measured
/// while others computed.
constexpr double k_row_share_max = 0.3;

float clamped(double factor) {
  return std::clamp(static_cast<float>(factor), k_factor_min, k_factor_max);
}

double ratio(Duration time, Duration of) {
  return static_cast<double>(time.count()) / static_cast<double>(of.count());
}

Duration times(Duration time, double factor) {
  return Duration(static_cast<Duration::rep>(static_cast<double>(time.count()) * factor));
}

}  // namespace

CostRefresh::CostRefresh(const StepCosts& measured)
    : measured_(measured), costs_(measured), cells_(measured.rows.size()) {
  const std::vector<uint32_t>& rows = measured_.rows;
  for (size_t i = 0; i < cells_.size(); ++i) {
    const uint32_t near = std::max(1u, rows[i] / k_about);
    const uint32_t least = rows[i] - std::min(rows[i], near);
    cells_[i].from = static_cast<size_t>(std::ranges::lower_bound(rows, least) - rows.begin());
    cells_[i].to =
        static_cast<size_t>(std::ranges::upper_bound(rows, rows[i] + near) - rows.begin()) - 1;
  }
  if (!rows.empty()) hoped_ = scaled(true);
}

void CostRefresh::observe(std::span<const StepShare> shares, Duration time) {
  if (cells_.empty()) return;
  uint32_t rows = 0;
  for (const StepShare& share : shares) rows += share.rows;
  const Duration expected = measured_.step(shares);
  if (expected.count() <= 0 || time.count() <= 0) return;
  const double taken = ratio(time, expected);
  const size_t at = cell_of(rows);
  Cell& cell = cells_[at];
  auto known = median_of_late(cell);
  if (!known || at != last_) {
    const size_t i = cell.count++ % k_window;
    cell.factors[i] = clamped(taken / pace_);
    cell.seen_at[i] = observations_;
    known = median_of_late(cell);
  } else {  // what is known of it is confirmed
    for (size_t i = 0; i < cell.size(); ++i) {
      if (is_late(cell, i)) cell.seen_at[i] = observations_;
    }
  }
  last_ = at;
  ++observations_;
  if (known) {
    pace_ = taken / *known;
    log_pace_ += k_pace_decay * (std::log(pace_) - log_pace_);
  }
  if (observations_ % k_refresh_every == 0) refresh();
}

/// Costs that were only compared with each other would wander.
void CostRefresh::follow_pace() {
  const double dearer = std::exp(k_anchor * log_pace_);
  for (Cell& cell : cells_) {
    for (float& factor : cell.factors) factor = clamped(factor * dearer);
  }
  pace_ /= dearer;
  log_pace_ *= 1 - k_anchor;
}

bool CostRefresh::knows_about(uint32_t rows) const {
  if (cells_.empty()) return true;
  const Cell& cell = cells_[cell_of(rows)];
  return late_ones(cell.from, cell.to) >= k_samples_min;
}

/// Beside rows that run all costs are known to differ: one side says nothing of the other.
bool CostRefresh::knows(uint32_t rows) const {
  if (cells_.empty()) return true;
  const size_t at = cell_of(rows);
  return late_ones(cells_[at].from, at) >= k_samples_min &&
         late_ones(at, cells_[at].to) >= k_samples_min;
}

/// The rows themselves or the next more: where another tile begins they are none of the last one.
size_t CostRefresh::cell_of(uint32_t rows) const {
  const auto found = std::ranges::lower_bound(measured_.rows, rows) - measured_.rows.begin();
  return std::min(static_cast<size_t>(found), cells_.size() - 1);
}

bool CostRefresh::is_late(const Cell& cell, size_t i) const {
  return observations_ - cell.seen_at[i] < k_late;
}

size_t CostRefresh::late_ones(size_t from, size_t to) const {
  size_t sum = 0;
  for (size_t at = from; at <= to; ++at) {
    for (size_t i = 0; i < cells_[at].size(); ++i) sum += is_late(cells_[at], i) ? 1 : 0;
  }
  return sum;
}

/// Observations in the first i cells, for each i.
std::vector<size_t> CostRefresh::counted(bool late_only) const {
  std::vector<size_t> out = {0};
  for (size_t at = 0; at < cells_.size(); ++at) {
    out.push_back(out.back() + (late_only ? late_ones(at, at) : cells_[at].size()));
  }
  return out;
}

void CostRefresh::gather(const Cell& cell, bool late_only) {
  for (size_t i = 0; i < cell.size(); ++i) {
    if (!late_only || is_late(cell, i)) gathered_.push_back(cell.factors[i]);
  }
}

std::optional<double> CostRefresh::median_of_late(const Cell& cell) {
  gathered_.clear();
  gather(cell, true);
  return median_of_gathered();
}

std::optional<double> CostRefresh::median_of_gathered() {
  if (gathered_.size() < k_samples_min) return {};
  const auto middle = gathered_.begin() + static_cast<std::ptrdiff_t>(gathered_.size() / 2);
  std::nth_element(gathered_.begin(), middle, gathered_.end());
  return double{*middle};
}

/// By its own observations, or with those of about as many rows until there are enough.
std::optional<double> CostRefresh::of_cell(size_t at, bool late_only,
                                           std::span<const size_t> counted) {
  const Cell& cell = cells_[at];
  if (counted[cell.to + 1] - counted[cell.from] < k_samples_min) return {};
  if (const auto late = median_of_late(cell)) return late;
  if (!late_only) {
    gathered_.clear();
    gather(cell, false);
  }
  for (size_t away = 1; gathered_.size() < k_samples_min; ++away) {
    if (at >= cell.from + away) gather(cells_[at - away], late_only);
    if (at + away <= cell.to) gather(cells_[at + away], late_only);
  }
  return median_of_gathered();
}

/// Rows of which nothing is known are as much slower as those around them of which there is: so
/// what was measured in a slow moment is put right by a few steps, and a machine that is slower
/// than at the start makes no draft look cheap.
std::vector<double> CostRefresh::factors(bool late_only) {
  const std::vector<size_t> seen = counted(late_only);
  std::vector<uint32_t> known;
  std::vector<double> of_known;
  for (size_t i = 0; i < cells_.size(); ++i) {
    const auto factor = of_cell(i, late_only, seen);
    if (!factor) continue;
    known.push_back(measured_.rows[i]);
    of_known.push_back(*factor);
  }
  if (known.empty()) return std::vector<double>(cells_.size(), 1);
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

/// Cells in the order in which they are believed: first those that are known by steps of late, then
/// those that ever ran, each time the one that ran last first, and then those that never did.
std::vector<size_t> CostRefresh::by_trust() const {
  struct Trust {
    bool is_known = false;
    uint64_t last_seen = 0;
  };
  std::vector<Trust> trust;
  for (size_t at = 0; at < cells_.size(); ++at) {
    uint64_t last_seen = 0;
    for (size_t i = 0; i < cells_[at].size(); ++i) {
      last_seen = std::max(last_seen, cells_[at].seen_at[i] + 1);
    }
    trust.push_back({late_ones(at, at) >= k_samples_min, last_seen});
  }
  std::vector<size_t> order(cells_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return std::tie(trust[a].is_known, trust[a].last_seen) >
           std::tie(trust[b].is_known, trust[b].last_seen);
  });
  return order;
}

/// Makes of what was measured what is believed: as much longer as each cell says. Where two of them
/// contradict each other, as fewer rows take longer, the one that is trusted first is right.
void CostRefresh::reconcile(std::span<const double> slower, std::span<const size_t> by_trust,
                            const std::vector<bool>& known, std::span<Duration> inout) const {
  const std::vector<Duration> measured(inout.begin(), inout.end());
  std::vector<double> factor(slower.begin(), slower.end());
  std::vector<bool> is_set(inout.size());
  for (const size_t i : by_trust) {
    size_t left = i, right = i;
    while (left > 0 && !is_set[left]) --left;
    while (right + 1 < inout.size() && !is_set[right]) ++right;
    double least = factor[i];
    if (is_set[left]) least = std::min(least, factor[left]);
    if (is_set[right]) least = std::min(least, factor[right]);
    const auto growth = [&](size_t from, size_t to) {
      const double share = known[from] && known[to] ? k_growth_known : k_growth_left;
      return times(measured[to] - measured[from], share * least);
    };
    Duration lowest = times(measured[i], k_factor_min);
    if (is_set[left]) lowest = inout[left] + growth(left, i);
    Duration highest = Duration::max();
    if (is_set[right]) highest = inout[right] - growth(i, right);
    Duration time = std::max(lowest, std::min(highest, times(measured[i], slower[i])));
    if (is_set[left] && is_set[right] && lowest > highest) {  // those two are nearer to each other
      const double part = ratio(measured[i] - measured[left], measured[right] - measured[left]);
      time = inout[left] + times(inout[right] - inout[left], part);
    }
    inout[i] = time;
    factor[i] = ratio(time, measured[i]);
    is_set[i] = true;
  }
}

StepCosts CostRefresh::scaled(bool late_only) {
  const std::vector<double> slower = factors(late_only);
  const std::vector<size_t> order = by_trust();
  const size_t width = cells_.size();
  std::vector<bool> known;
  for (size_t i = 0; i < width; ++i) known.push_back(late_ones(i, i) >= k_samples_min);
  StepCosts out = measured_;
  for (size_t row = 0; row < out.times.size(); row += width) {
    const std::span of_context = std::span(out.times).subspan(row, width);
    reconcile(slower, order, known, of_context);
    for (size_t i = 1; late_only && i < width; ++i) {
      if (known[i]) continue;
      const double dear = k_row_share_max * (measured_.rows[i] - measured_.rows[i - 1]);
      of_context[i] = std::min(of_context[i], of_context[i - 1] + times(of_context[0], dear));
    }
  }
  // As measured: never less than with a shorter context.
  for (size_t at = width; at < out.times.size(); ++at) {
    out.times[at] = std::max(out.times[at], out.times[at - width]);
  }
  return out;
}

void CostRefresh::refresh() {
  follow_pace();
  costs_ = scaled(false);
  hoped_ = scaled(true);
}

}  // namespace outrider::model
