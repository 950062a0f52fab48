#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

/// The numeric goldens in memory; README.md describes the file, make_model_golden.py writes it.
namespace outrider::golden {

/// The reference's 20 most probable tokens after ids[0 … position], best first.
struct Probe {
  uint32_t position = 0;
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
};

/// One sequence from an empty context. Entry i of nll, top1 and gap judges the prediction of
/// ids[i + 1], so each has one entry less than `ids`.
struct Window {
  std::string name;
  std::vector<int32_t> ids;
  std::vector<float> nll;     ///< nats
  std::vector<int32_t> top1;  ///< the reference's most probable token
  std::vector<float> gap;     ///< its logit less that of the second
  std::vector<Probe> probes;  ///< ascending positions
};

/// What the reference generates greedily after `prompt`, end-of-sequence ignored.
struct GreedyPath {
  std::string name;
  std::vector<int32_t> prompt;
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<float> gap;
};

struct GoldenFile {
  std::string model;
  std::string sha256;  ///< of the GGUF that the values belong to
  std::vector<Window> windows;
  std::vector<GreedyPath> greedy;
};

/// Checks that all arrays of a window or path have matching lengths.
Result<GoldenFile> parse_golden(std::string_view text);
Result<GoldenFile> read_golden(const std::string& path);

}  // namespace outrider::golden
