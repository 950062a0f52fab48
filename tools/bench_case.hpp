#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops.hpp"
#include "model/loaded_model.hpp"

namespace outrider::tools {

/// One test in llama-bench's sense: `prompt` tokens are prefilled, or `generate` tokens are decoded
/// in each of `batch` sequences, after `depth` tokens that are already there.
struct BenchCase {
  uint32_t prompt = 0;    ///< tokens; 0: a decode test
  uint32_t generate = 0;  ///< tokens of each sequence
  uint32_t batch = 1;     ///< sequences
  uint32_t depth = 0;     ///< tokens of each sequence

  /// llama-bench's name with a shorter depth: "pp512", "tg64x8", "pp512@4096".
  std::string name() const;
  bool is_prefill() const { return prompt != 0; }
  /// What the measured part computes.
  uint64_t tokens() const { return is_prefill() ? prompt : uint64_t{batch} * generate; }
  /// Prompt of each sequence: a decode test starts from one token.
  uint32_t prompt_tokens() const { return depth + (is_prefill() ? prompt : 1); }
  /// The longest that each sequence gets in one repetition.
  uint32_t sequence_tokens() const { return prompt_tokens() + (is_prefill() ? 1 : generate); }
};

/// Where the repetitions of a test stand in their sequences. Filling 32 sequences with 4096 tokens
/// takes minutes, so a deep decode test does it once: its repetitions follow each other, and the
/// middle one, which is the median of what grows with depth, starts at the test's own depth.
struct BenchLayout {
  uint32_t first_depth = 0;  ///< tokens, of the first repetition
  uint32_t per_filling = 1;  ///< repetitions

  /// `context` is the longest sequence that the model takes.
  static BenchLayout of(const BenchCase& bench, uint32_t repetitions, uint32_t context);
  /// The longest that each sequence of `bench` gets.
  uint32_t sequence_tokens(const BenchCase& bench) const;
};

struct BenchAxes {
  uint32_t prompt = 512;
  uint32_t generate = 64;
  std::vector<uint32_t> depths = {0};
  std::vector<uint32_t> batches = {1};
};

/// Prefill at each depth, then decode for each batch at each depth. Without `prompt` or `generate`
/// (0) the tests of that kind are left out.
std::vector<BenchCase> bench_cases(const BenchAxes& axes);

/// What any implementation must do for a model, whatever its speed.
struct ModelCost {
  uint64_t body_weights = 0;  ///< of all layers' matrices
  uint64_t head_weights = 0;
  uint64_t weight_bytes = 0;  ///< layers and head, as packed
  uint64_t kv_bytes = 0;      ///< of one position
  uint32_t window = 0;        ///< positions that a row reads; 0: all

  static ModelCost of(const model::LoadedModel& loaded, const kernels::KvGeometry& geometry);

  /// Integer operations of the matrix products of a whole test: two for each weight and token. A
  /// prefill needs the head for its last token only. Attention is not counted.
  double operations(const BenchCase& bench) const;
  /// Bytes that one step of a decode test reads, on average: all weights once, and the keys and
  /// values of every sequence.
  double step_bytes(const BenchCase& bench) const;
};

}  // namespace outrider::tools
