#include <algorithm>
#include <numeric>

#include "base/check.hpp"
#include "base/philox.hpp"
#include "model/engine_state.hpp"

namespace outrider::model {
namespace {

constexpr uint64_t k_noise_seed = 0x5EED;

/// Keys and values of one block and layer.
std::vector<float> noise_of(const kernels::KvGeometry& geometry) {
  Random random(k_noise_seed);
  std::vector<float> noise(size_t{geometry.block_tokens} * geometry.kv_heads * geometry.head_dim);
  for (float& value : noise) value = 2 * random.uniform() - 1;
  return noise;
}

}  // namespace

uint32_t Engine::batch_tokens() const {
  return state_->batch_tokens;
}

uint32_t Engine::probe_tokens_max() const {
  const uint64_t room =
      uint64_t{state_->cache->available()} * state_->cache->geometry().block_tokens;
  return static_cast<uint32_t>(std::min<uint64_t>(room, state_->context_tokens));
}

Duration Engine::time_step(uint32_t rows, uint32_t context, uint32_t sampled) {
  State& s = *state_;
  OUTRIDER_CHECK(idle() && rows >= 1 && rows <= s.batch_tokens && sampled <= rows, rows, sampled);
  KvSequence sequence(*s.cache);
  s.cache->fill_new_blocks(noise_of(s.cache->geometry()));
  const bool has_room = sequence.append(context + rows);
  s.cache->fill_new_blocks({});
  OUTRIDER_CHECK(has_room && context + rows <= s.context_tokens, context, rows);
  s.ids.assign(rows, 0);
  s.positions.resize(rows);
  std::iota(s.positions.begin(), s.positions.end(), static_cast<int32_t>(context));
  s.segments.assign(1, {.block_table = sequence.table().data(),
                        .first_row = 0,
                        .rows = rows,
                        .first_position = context});
  std::vector<uint32_t> read(sampled);
  std::iota(read.begin(), read.end(), rows - sampled);
  const size_t at_once = s.transformer.logit_rows_max();
  std::vector<kernels::RowDraw> draws(std::min<size_t>(at_once, sampled));
  for (size_t i = 0; i < draws.size(); ++i) {
    draws[i] = {.temperature = 1, .row = static_cast<uint32_t>(i)};
  }
  const TimePoint start = s.clock.now();
  s.transformer.forward({s.ids, s.positions, s.segments}, s.cache->memory());
  for (size_t first = 0; first < read.size(); first += at_once) {
    const size_t count = std::min(at_once, read.size() - first);
    s.transformer.compute_logits(std::span(read).subspan(first, count));
    s.transformer.read({}, std::span(draws).first(s.transformer.samples() ? count : 0));
  }
  s.transformer.wait();
  return s.clock.now() - start;
}

}  // namespace outrider::model
