#include "tools/bench_case.hpp"

#include <algorithm>

namespace outrider::tools {

std::string BenchCase::name() const {
  std::string out = is_prefill() ? "pp" + std::to_string(prompt) : "tg" + std::to_string(generate);
  if (batch != 1) out += "x" + std::to_string(batch);
  if (depth != 0) out += "@" + std::to_string(depth);
  return out;
}

std::vector<BenchCase> bench_cases(const BenchAxes& axes) {
  std::vector<BenchCase> cases;
  if (axes.prompt != 0) {
    for (const uint32_t depth : axes.depths) {
      cases.push_back({.prompt = axes.prompt, .depth = depth});
    }
  }
  if (axes.generate != 0) {
    for (const uint32_t batch : axes.batches) {
      for (const uint32_t depth : axes.depths) {
        cases.push_back({.generate = axes.generate, .batch = batch, .depth = depth});
      }
    }
  }
  return cases;
}

BenchLayout BenchLayout::of(const BenchCase& bench, uint32_t repetitions, uint32_t context) {
  const BenchLayout apart = {.first_depth = bench.depth};
  const uint64_t before = uint64_t{(repetitions - 1) / 2} * bench.generate;
  if (bench.is_prefill() || before >= bench.depth) return apart;
  const uint64_t last = bench.depth - before + uint64_t{repetitions} * bench.generate + 1;
  if (last > context) return apart;
  return {.first_depth = bench.depth - static_cast<uint32_t>(before), .per_filling = repetitions};
}

uint32_t BenchLayout::sequence_tokens(const BenchCase& bench) const {
  return first_depth + bench.sequence_tokens() - bench.depth + (per_filling - 1) * bench.generate;
}

ModelCost ModelCost::of(const model::LoadedModel& loaded, const kernels::KvGeometry& geometry) {
  ModelCost cost;
  const auto add = [&cost](const kernels::Matrix& matrix, uint64_t& weights) {
    weights += uint64_t{matrix.rows()} * matrix.cols();
    cost.weight_bytes += matrix.bytes();
  };
  for (const model::LayerWeights& layer : loaded.weights.layers) {
    for (const auto* matrix : {&layer.attn_q, &layer.attn_k, &layer.attn_v, &layer.attn_output,
                               &layer.ffn_gate, &layer.ffn_up, &layer.ffn_down}) {
      add(**matrix, cost.body_weights);
    }
  }
  add(loaded.weights.head(), cost.head_weights);
  cost.kv_bytes = geometry.block_bytes() / geometry.block_tokens;
  cost.window = geometry.window;
  return cost;
}

double ModelCost::operations(const BenchCase& bench) const {
  const double heads = bench.is_prefill() ? 1.0 : static_cast<double>(bench.tokens());
  return 2.0 * (static_cast<double>(body_weights) * static_cast<double>(bench.tokens()) +
                static_cast<double>(head_weights) * heads);
}

double ModelCost::step_bytes(const BenchCase& bench) const {
  // Step i of n reads depth + i positions, i from 1.
  double positions = bench.depth + (bench.generate + 1) / 2.0;
  if (window != 0) positions = std::min<double>(positions, window);
  return static_cast<double>(weight_bytes) +
         static_cast<double>(kv_bytes) * bench.batch * positions;
}

}  // namespace outrider::tools
