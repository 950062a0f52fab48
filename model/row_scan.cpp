#include "model/row_scan.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/fmath.hpp"
#include "kernels/host.hpp"
#include "model/noise.hpp"

namespace outrider::model {
namespace {

constexpr float k_lowest = -std::numeric_limits<float>::infinity();
constexpr size_t k_block = kernels::k_peak_block;

}  // namespace

RowScan::RowScan(std::span<const float> logits, std::vector<float>& memory) : logits_(logits) {
  const size_t count = kernels::peak_count(logits.size());
  memory.resize(2 * count);
  all_finite_ = kernels::find_peaks(logits, memory.data());
  peaks_ = std::span(memory).first(count);
  spare_ = std::span(memory).last(count);
}

std::span<const float> RowScan::block(size_t index) const {
  const size_t begin = index * k_block;
  return logits_.subspan(begin, std::min(k_block, logits_.size() - begin));
}

float RowScan::highest() const {
  return *std::max_element(peaks_.begin(), peaks_.end());
}

int32_t RowScan::argmax() const {
  const auto peak = std::max_element(peaks_.begin(), peaks_.end());
  if (*peak == k_lowest) return -1;
  const auto first = logits_.begin() + (peak - peaks_.begin()) * static_cast<ptrdiff_t>(k_block);
  return static_cast<int32_t>(std::find(first, logits_.end(), *peak) - logits_.begin());
}

uint32_t RowScan::count_ahead(int32_t id) const {
  const float own = logits_[static_cast<size_t>(id)];
  uint32_t count = 0;
  for (size_t b = 0; b < peaks_.size(); ++b) {
    if (peaks_[b] < own) continue;
    const std::span<const float> values = block(b);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto other = static_cast<int32_t>(b * k_block + i);
      count += values[i] > own || (values[i] == own && other < id) ? 1u : 0u;
    }
  }
  return count;
}

float RowScan::reached_by(size_t count) const {
  // So many blocks have a peak that is at least the count-th highest of the peaks.
  if (count > peaks_.size()) return k_lowest;
  std::copy(peaks_.begin(), peaks_.end(), spare_.begin());
  const auto place = spare_.begin() + static_cast<ptrdiff_t>(count) - 1;
  std::nth_element(spare_.begin(), place, spare_.end(), std::greater<>());
  return *place;
}

void RowScan::collect(const ScoreScale& scale, float least,
                      std::vector<SampleScratch::Candidate>& out) const {
  out.clear();
  for (size_t b = 0; b < peaks_.size(); ++b) {
    // Scores keep the order of the logits, so the block's highest score is its peak's.
    if (scale.score(peaks_[b]) < least || peaks_[b] == k_lowest) continue;
    const std::span<const float> values = block(b);
    for (size_t i = 0; i < values.size(); ++i) {
      const float score = scale.score(values[i]);
      if (score < least || values[i] == k_lowest) continue;
      out.push_back({score, static_cast<int32_t>(b * k_block + i)});
    }
  }
}

double RowScan::sum_of_exponentials(const ScoreScale& scale) const {
  constexpr size_t k_part = 1024;
  static_assert(k_part % 16 == 0);
  float part[k_part];
  LaneSum sum;
  for (size_t at = 0; at < logits_.size(); at += k_part) {
    const size_t count = std::min(k_part, logits_.size() - at);
    for (size_t i = 0; i < count; ++i) part[i] = scale.score(logits_[at + i]);
    exp_f32_n(part, count, part);
    sum.add_row({part, count});
  }
  return sum.total();
}

int32_t RowScan::gumbel_argmax(const ScoreScale& scale, uint64_t seed, uint64_t position) const {
  GumbelWinner winner;
  uint32_t bits[k_block];
  const auto see_block = [&](size_t b) {
    const float highest = scale.score(peaks_[b]);
    if (peaks_[b] == k_lowest) return;
    if (winner.id >= 0 && highest + k_gumbel_max < winner.value) return;
    const auto group = static_cast<uint32_t>(b * k_block / 4);
    kernels::philox_block(noise_counter(position, group), noise_key(seed), bits);
    const std::span<const float> values = block(b);
    for (size_t i = 0; i < values.size(); ++i) {
      if (winner.id >= 0 && highest + gumbel_bound(bits[i]) < winner.value) continue;
      if (values[i] == k_lowest) continue;
      winner.see(scale.score(values[i]), bits[i], static_cast<int32_t>(b * k_block + i));
    }
  };
  // The likeliest first: then most others need no noise.
  const size_t first = static_cast<size_t>(argmax()) / k_block;
  see_block(first);
  for (size_t b = 0; b < peaks_.size(); ++b) {
    if (b != first) see_block(b);
  }
  return winner.id;
}

void LaneSum::add_row(std::span<const float> values) {
  size_t i = 0;
  for (; i + 16 <= values.size(); i += 16) {
    for (size_t l = 0; l < 16; ++l) lanes_[l] += double{values[i + l]};
  }
  for (; i < values.size(); ++i) lanes_[i % 16] += double{values[i]};
}

double LaneSum::total() const {
  double sum = lanes_[0];
  for (size_t l = 1; l < 16; ++l) sum += lanes_[l];
  return sum;
}

void GumbelWinner::see(float score, uint32_t bits, int32_t candidate) {
  if (id >= 0 && score + gumbel_bound(bits) < value) return;
  const float sum = score + gumbel(bits);
  if (id >= 0 && (sum < value || (sum == value && candidate > id))) return;
  value = sum;
  id = candidate;
}

}  // namespace outrider::model
