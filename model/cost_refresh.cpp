#include "model/cost_refresh.hpp"

#include <algorithm>
#include <cmath>
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
  if (!rows.empty()) hoped_ = scaled(true, trust());
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
    const double factor = std::lerp(of_known[from], of_known[to], part);
    // A stair that nobody measured makes those behind it look dear, and it may be the last.
    const bool is_hope = late_only && known[to] != rows;
    out.push_back(is_hope ? std::min(factor, 1.0) : factor);
  }
  return out;
}

/// First those that are known by steps of late, then those that ever ran, each time the one that
/// ran last first, and then those that never did.
CostRefresh::Trust CostRefresh::trust() const {
  const size_t size = cells_.size();
  Trust out;
  std::vector<uint64_t> last_seen;
  for (size_t at = 0; at < size; ++at) {
    const auto seen_at = std::span(cells_[at].seen_at).first(cells_[at].size());
    last_seen.push_back(seen_at.empty() ? 0 : 1 + *std::ranges::max_element(seen_at));
    out.is_known.push_back(late_ones(at, at) >= k_samples_min);
    out.order.push_back(at);
    out.left.push_back(at == 0 ? size : at - 1);
    out.right.push_back(at + 1);
  }
  std::ranges::stable_sort(out.order, [&](size_t a, size_t b) {
    return std::tuple(out.is_known[a], last_seen[a]) > std::tuple(out.is_known[b], last_seen[b]);
  });
  // Who is trusted less leaves first: those beside it are then the ones that are trusted more.
  for (auto it = out.order.rbegin(); it != out.order.rend(); ++it) {
    const size_t at = *it;
    if (out.left[at] < size) out.right[out.left[at]] = out.right[at];
    if (out.right[at] < size) out.left[out.right[at]] = out.left[at];
  }
  return out;
}

/// Makes of what was measured what is believed: as much longer as each cell says. Where two of them
/// contradict each other, as fewer rows take longer, the one that is trusted first is right.
void CostRefresh::reconcile(std::span<const double> slower, const Trust& trust,
                            std::span<Duration> inout) {
  const std::vector<Duration> measured(inout.begin(), inout.end());
  std::vector<double> factor(slower.begin(), slower.end());
  for (const size_t i : trust.order) {
    const size_t left = trust.left[i], right = trust.right[i];
    const bool has_left = left < inout.size(), has_right = right < inout.size();
    double least = factor[i];
    if (has_left) least = std::min(least, factor[left]);
    if (has_right) least = std::min(least, factor[right]);
    const auto growth = [&](size_t from, size_t to) {
      const bool both_known = trust.is_known[from] && trust.is_known[to];
      return times(measured[to] - measured[from],
                   (both_known ? k_growth_known : k_growth_left) * least);
    };
    Duration lowest = times(measured[i], k_factor_min);
    if (has_left) lowest = inout[left] + growth(left, i);
    Duration highest = Duration::max();
    if (has_right) highest = inout[right] - growth(i, right);
    Duration time = std::max(lowest, std::min(highest, times(measured[i], slower[i])));
    if (has_left && has_right && lowest > highest) {  // those two are nearer to each other
      const double part = ratio(measured[i] - measured[left], measured[right] - measured[left]);
      time = inout[left] + times(inout[right] - inout[left], part);
    }
    inout[i] = time;
    factor[i] = ratio(time, measured[i]);
  }
}

StepCosts CostRefresh::scaled(bool late_only, const Trust& trust) {
  const std::vector<double> slower = factors(late_only);
  const size_t width = cells_.size();
  StepCosts out = measured_;
  for (size_t row = 0; row < out.times.size(); row += width) {
    const std::span of_context = std::span(out.times).subspan(row, width);
    reconcile(slower, trust, of_context);
    for (size_t i = 1; late_only && i < width; ++i) {
      if (trust.is_known[i]) continue;
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
  const Trust now = trust();
  costs_ = scaled(false, now);
  hoped_ = scaled(true, now);
}

}  // namespace outrider::model
