#include "model/step_costs.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>

#include "base/check.hpp"

namespace outrider::model {
namespace {

/// Rows of one sequence, its own and its hints, or of a few. Densest behind the end of a CPU's
/// tiles, of four or eight rows: the first row of another tile may cost as much as all of it.
constexpr uint32_t k_rows[] = {1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17, 20, 24, 32};
constexpr uint32_t k_contexts[] = {0, 1024, 4096};
/// What a context adds bends less with rows: these are measured behind one.
constexpr uint32_t k_rows_behind[] = {1, 2, 4, 8, 16};
/// Rows of many sequences are measured at four points of each doubling: devices compute rows for
/// nothing up to some number and at full price from there on, and drafts live on knowing where. No
/// further than where a doubling makes a step so much longer: it goes on like that. Nor than to
/// steps of this time: a start is to take seconds.
constexpr double k_full_price = 1.7;
constexpr Duration k_wide_step_max = std::chrono::milliseconds(500);
/// How the rows of a tile of eight share its cost is measured of the third one, and taken to be so
/// of all up to these rows: that many sequences decode with one hint, or two.
constexpr uint32_t k_tile = 8;
constexpr uint32_t k_tiles_to = 128;
/// Of each doubling, where the table goes on.
constexpr uint32_t k_points = 64;
/// Rounds over the rows of one sequence: as many as begin within this time.
constexpr Duration k_narrow_for = std::chrono::seconds(2);
constexpr int k_narrow_rounds = 8;
/// Even so long steps are measured twice: one slow moment is to be no cell's cost.
constexpr int k_times_min = 2;
/// Rows of the prefill chunk, and the context that tells what a pair costs.
constexpr uint32_t k_chunk_rows = 128;
constexpr uint32_t k_chunk_context = 1024;
/// Any other step is repeated within this time, up to so often. The least time is what it takes
/// when nobody disturbs.
constexpr Duration k_repeat_for = std::chrono::milliseconds(60);
constexpr int k_repeats_max = 5;

/// Chunks smaller than this read the weights too often.
constexpr uint32_t k_chunk_rows_min = 128;
/// Tokens before the middle of a chunk, one for each bucket of a DecodePlan. All chunks of a bucket
/// attend to as much, so that their rows can be compared.
constexpr uint32_t k_chunk_middles[] = {256, 1280, 3072};
/// In all, by what is known of a row when a chunk begins.
constexpr Duration k_chunks_for = std::chrono::seconds(3);
/// A bucket that cannot be measured twice is left out: one time says nothing.
constexpr int k_chunk_rounds_min = 2;
constexpr int k_chunk_rounds = 3;

Duration least_time(StepProbe& probe, const Clock& clock, uint32_t rows, uint32_t context,
                    uint32_t sampled) {
  const TimePoint end = clock.now() + k_repeat_for;
  Duration least = probe.time_step(rows, context, sampled);
  for (int i = 1; i < k_repeats_max && (i < k_times_min || clock.now() < end); ++i) {
    least = std::min(least, probe.time_step(rows, context, sampled));
  }
  return least;
}

/// Value at x of the line through the two points around it, or the two nearest; ys[i] is at xs[i].
template <class At>
double interpolate(std::span<const uint32_t> xs, double x, At at) {
  if (xs.size() == 1) return at(0);
  const auto at_or_behind = std::ranges::lower_bound(xs, x) - xs.begin();
  const auto right = std::clamp<size_t>(static_cast<size_t>(at_or_behind), 1, xs.size() - 1);
  const double from = xs[right - 1];
  const double part = (x - from) / (xs[right] - from);
  return at(right - 1) + part * (at(right) - at(right - 1));
}

/// How often one of `rows` rows attends to an earlier token, the first row behind `context` tokens.
double attended_pairs(double rows, double context, double window) {
  const double growing = window == 0 ? rows : std::clamp(window - context, 0.0, rows);
  return growing * (context + growing / 2) + (rows - growing) * window;
}

double ns(Duration time) {
  return static_cast<double>(time.count());
}

/// By quarters of a doubling.
uint32_t next_rows(uint32_t rows) {
  return rows + std::bit_floor(rows) / 4;
}

bool is_measured_behind_contexts(uint32_t rows) {
  return std::ranges::find(k_rows_behind, rows) != std::end(k_rows_behind);
}

/// Of rows that were not measured behind a context: what it adds is interpolated.
void fill_contexts(StepCosts& costs) {
  const size_t width = costs.rows.size();
  std::vector<uint32_t> measured;
  std::vector<size_t> at;
  for (size_t i = 0; i < width; ++i) {
    if (!is_measured_behind_contexts(costs.rows[i])) continue;
    measured.push_back(costs.rows[i]);
    at.push_back(i);
  }
  for (size_t c = 1; c < costs.contexts.size(); ++c) {
    Duration* const times = &costs.times[c * width];
    const auto added = [&](size_t k) { return ns(times[at[k]]) - ns(costs.times[at[k]]); };
    for (size_t i = 0; i < width; ++i) {
      if (is_measured_behind_contexts(costs.rows[i])) continue;
      const double more = interpolate(measured, costs.rows[i], added);
      times[i] = costs.times[i] + Duration(static_cast<Duration::rep>(more));
    }
  }
}

/// Disturbances only add: no step takes longer than one of more rows, or behind more.
void lower_disturbed(StepCosts& costs) {
  const size_t width = costs.rows.size();
  for (size_t at = costs.times.size(); at-- > 0;) {
    if ((at + 1) % width > 0) costs.times[at] = std::min(costs.times[at], costs.times[at + 1]);
    if (at + width < costs.times.size()) {
      costs.times[at] = std::min(costs.times[at], costs.times[at + width]);
    }
  }
}

struct Narrow {
  std::span<const uint32_t> rows;
  std::span<const uint32_t> contexts;
  int rounds = 0;
};

/// The rows of one sequence behind each context, as costs of their own. Rounds go over all of them
/// in turn, so that a slow moment is no cell's own.
void measure_narrow(StepProbe& probe, const Clock& clock, const Narrow& wanted, StepCosts& costs) {
  const uint32_t most = std::min(probe.probe_tokens_max(), probe.batch_tokens());
  std::ranges::copy_if(wanted.rows, std::back_inserter(costs.rows),
                       [&](uint32_t rows) { return rows <= most; });
  std::ranges::copy_if(wanted.contexts, std::back_inserter(costs.contexts), [&](uint32_t context) {
    return context + costs.rows.back() <= probe.probe_tokens_max();
  });
  const size_t width = costs.rows.size();
  costs.times.assign(costs.contexts.size() * width, Duration::max());
  const TimePoint end = clock.now() + k_narrow_for;
  for (int round = 0; round < wanted.rounds && (round < k_times_min || clock.now() < end);
       ++round) {
    for (size_t at = 0; at < costs.times.size(); ++at) {
      const uint32_t rows = costs.rows[at % width];
      const uint32_t context = costs.contexts[at / width];
      if (context > 0 && !is_measured_behind_contexts(rows)) continue;
      // The caches still have what was read behind another context: that is not this one's cost.
      if (rows == 1) probe.time_step(rows, context, rows);
      costs.times[at] = std::min(costs.times[at], probe.time_step(rows, context, rows));
    }
  }
  lower_disturbed(costs);
  fill_contexts(costs);
  lower_disturbed(costs);
}

/// More rows, those of many sequences. What a context costs is a sequence's own: as measured.
void measure_wide(StepProbe& probe, const Clock& clock, StepCosts& costs) {
  const uint32_t most = std::min(probe.probe_tokens_max(), probe.batch_tokens());
  const size_t narrow = costs.rows.size();
  if (narrow < std::size(k_rows)) return;
  StepCosts wide{.rows = costs.rows, .times = {costs.times.begin(), costs.times.begin() + narrow}};
  for (uint32_t rows = next_rows(wide.rows.back()); rows <= most; rows = next_rows(rows)) {
    const double last = ns(wide.times.back());
    if (last >= k_full_price * wide.rows_ns(wide.rows.back() / 2.0)) break;
    if (last >= ns(k_wide_step_max)) break;
    wide.times.push_back(std::max(least_time(probe, clock, rows, 0, rows), wide.times.back()));
    wide.rows.push_back(rows);
  }
  std::vector<Duration> times = wide.times;
  for (size_t c = 1; c < costs.contexts.size(); ++c) {
    const auto measured = costs.times.begin() + static_cast<std::ptrdiff_t>(c * narrow);
    const Duration extra = measured[narrow - 1] - wide.times[narrow - 1];
    times.insert(times.end(), measured, measured + narrow);
    for (size_t i = narrow; i < wide.rows.size(); ++i) times.push_back(wide.times[i] + extra);
  }
  costs.rows = std::move(wide.rows);
  costs.times = std::move(times);
}

/// Twice as many rows as were measured: they go on as between the last two points, but cost no less
/// than those of the last doubling on average. Both points may lie in one tile, where rows are
/// free.
StepCosts with_a_doubling_more(const StepCosts& costs) {
  const uint32_t last = costs.rows.back();
  StepCosts out = costs;
  out.rows.push_back(2 * last);
  out.times.clear();
  for (const uint32_t context : costs.contexts) {
    const auto time = [&](uint32_t rows) {
      return costs.rows_ns(rows) + costs.context_ns({rows, context});
    };
    for (const uint32_t rows : costs.rows) {
      out.times.emplace_back(static_cast<Duration::rep>(time(rows)));
    }
    const double doubled = time(last) + 2 * (time(last) - time(last / 2));
    out.times.emplace_back(static_cast<Duration::rep>(std::max(doubled, time(2 * last))));
  }
  return out;
}

/// All rows up to 128 and each 64th part of a doubling behind them, as far as steps go: what
/// takes so many rows is to be learnt apart from what takes fewer. Behind those that were measured
/// row by row each tile is as the third one.
StepCosts with_all_rows(const StepCosts& measured, uint32_t rows_max) {
  if (measured.rows.size() < std::size(k_rows)) return measured;
  const StepCosts costs = with_a_doubling_more(measured);
  const double before = costs.rows_ns(2 * k_tile);
  const double whole = costs.rows_ns(3 * k_tile) - before;
  const auto share = [&](uint32_t rows) {
    const double even = double{1} * rows / k_tile;
    return whole > 0 ? std::max(even, (costs.rows_ns(2 * k_tile + rows) - before) / whole) : even;
  };
  const double first = share(1);
  const double half = std::max(first, share(k_tile / 2));
  std::map<uint32_t, double> points;
  for (size_t i = 0; i < costs.rows.size(); ++i) points[costs.rows[i]] = ns(costs.times[i]);
  for (uint32_t begin = 3 * k_tile; begin < k_tiles_to; begin += k_tile) {
    const double from = costs.rows_ns(begin);
    const double added = costs.rows_ns(begin + k_tile) - from;
    points.emplace(begin + 1, from + first * added);
    points.emplace(begin + k_tile / 2, from + half * added);
    points.emplace(begin + k_tile, from + added);
  }
  StepCosts line;
  for (const auto& [rows, of_rows] : points) {
    line.rows.push_back(rows);
    line.times.emplace_back(static_cast<Duration::rep>(of_rows));
  }
  StepCosts out = costs;
  out.rows.clear();
  out.times.clear();
  for (uint32_t rows = 1; rows <= rows_max; rows += std::max(1u, std::bit_floor(rows) / k_points)) {
    out.rows.push_back(rows);
  }
  for (const uint32_t context : costs.contexts) {
    for (const uint32_t rows : out.rows) {
      const double time = line.rows_ns(rows) + costs.context_ns({rows, context});
      out.times.emplace_back(static_cast<Duration::rep>(time));
    }
  }
  lower_disturbed(out);
  return out;
}

void measure_prefill(StepProbe& probe, const Clock& clock, StepCosts& costs) {
  const uint32_t room = probe.probe_tokens_max();
  const uint32_t rows = std::min({k_chunk_rows, room, probe.batch_tokens()});
  const double plain = ns(least_time(probe, clock, rows, 0, 1));
  const uint32_t context = std::min(k_chunk_context, room - rows);
  const double own = attended_pairs(rows, 0, costs.local_window);
  const double more = attended_pairs(rows, context, costs.local_window) - own;
  // Of fewer pairs the time is noise. A window that allows no more makes all rows alike.
  double pair = 0;
  if (more >= double{1} * rows * rows) {
    const double behind = ns(least_time(probe, clock, rows, context, 1));
    pair = std::max(0.0, (behind - plain) / more);
  }
  costs.prefill_row_ns = static_cast<uint64_t>(std::max(1.0, (plain - pair * own) / rows));
  costs.attention_pair_ps = static_cast<uint64_t>(pair * 1000);
}

}  // namespace

double StepCosts::rows_ns(double row_count) const {
  return interpolate(rows, row_count, [this](size_t i) { return ns(times[i]); });
}

double StepCosts::context_ns(const StepShare& share) const {
  const double between = interpolate(contexts, share.context, [&](size_t c) {
    return interpolate(rows, share.rows,
                       [&](size_t i) { return ns(times[c * rows.size() + i]) - ns(times[i]); });
  });
  return std::max(0.0, between);
}

Duration StepCosts::step(std::span<const StepShare> shares) const {
  OUTRIDER_CHECK(!rows.empty() && times.size() == rows.size() * contexts.size(), times.size());
  double total_rows = 0;
  double sum = 0;
  for (const StepShare& share : shares) {
    if (share.rows == 0) continue;
    total_rows += share.rows;
    sum += context_ns(share);
  }
  if (total_rows == 0) return {};
  return Duration(static_cast<Duration::rep>(sum + rows_ns(total_rows)));
}

Duration StepCosts::prefill(uint32_t row_count, uint32_t context) const {
  const double pairs = attended_pairs(row_count, context, local_window);
  return Duration(
      static_cast<Duration::rep>(row_count * static_cast<double>(prefill_row_ns) +
                                 pairs * static_cast<double>(attention_pair_ps) / 1000));
}

ChunkCosts measure_chunk_costs(StepProbe& probe, const Clock& clock) {
  const TimePoint end = clock.now() + k_chunks_for;
  ChunkCosts costs;
  const uint32_t whole = probe.batch_tokens();
  for (uint32_t rows = whole; rows == whole || rows >= k_chunk_rows_min; rows /= 2) {
    costs.rows.insert(costs.rows.begin(), rows);
  }
  double row_ns = 0;
  const auto timed = [&](uint32_t rows, uint32_t context) -> std::optional<Duration> {
    if (clock.now() + Duration(static_cast<Duration::rep>(row_ns * rows)) > end) return {};
    const Duration time = probe.time_step(rows, context, 1);
    row_ns = ns(time) / rows;
    return time;
  };
  timed(costs.rows.front(), 0);  // Cold caches and pages are not the machine.
  for (size_t bucket = 0; bucket < costs.buckets.size(); ++bucket) {
    const uint32_t middle = std::max(k_chunk_middles[bucket], whole / 2);
    if (middle + (whole + 1) / 2 > probe.probe_tokens_max()) break;
    std::vector<Duration>& times = costs.buckets[bucket];
    times.assign(costs.rows.size(), Duration::max());
    // In turns, so that a disturbance hits more than one.
    for (int round = 0; round < k_chunk_rounds; ++round) {
      for (size_t i = 0; i < times.size(); ++i) {
        const uint32_t rows = costs.rows[i];
        const auto time = timed(rows, middle - rows / 2);
        if (time) times[i] = std::min(times[i], *time);
        if (time || round >= k_chunk_rounds_min) continue;
        times.clear();
        return costs;
      }
    }
  }
  return costs;
}

StepCosts measure_step_costs(StepProbe& probe, const Clock& clock) {
  probe.time_step(1, 0, 1);  // Cold caches and pages are not the machine.
  StepCosts costs;
  costs.local_window = probe.local_window();
  measure_narrow(probe, clock, {k_rows, k_contexts, k_narrow_rounds}, costs);
  measure_wide(probe, clock, costs);
  measure_prefill(probe, clock, costs);
  return with_all_rows(costs, probe.batch_tokens());
}

StepCosts measure_few_step_costs(StepProbe& probe, const Clock& clock) {
  probe.time_step(1, 0, 1);
  StepCosts costs;
  costs.local_window = probe.local_window();
  measure_narrow(probe, clock, {k_rows_behind, std::span(k_contexts).first(1), k_times_min}, costs);
  return costs;
}

}  // namespace outrider::model
