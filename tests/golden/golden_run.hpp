#pragma once

#include <cstddef>

#include "base/result.hpp"
#include "model/generator.hpp"
#include "tests/golden/golden_file.hpp"
#include "tests/golden/golden_stats.hpp"

namespace outrider::golden {

/// Scores every window and follows every greedy path with the engine, through the same requests
/// that a client would send: prompt_logprobs for windows, temperature 0 for paths.
Result<Report> run_golden(model::Generator& generator, const GoldenFile& file);

}  // namespace outrider::golden
