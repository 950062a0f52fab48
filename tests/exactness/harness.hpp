#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "kernels/ops.hpp"
#include "tests/exactness/cases.hpp"
#include "tests/exactness/outcome.hpp"
#include "tests/exactness/play.hpp"

/// The proof of the exactness contract: each request alone, then inside random batches under random
/// axes; every token and every logprob bit is compared.
namespace outrider::exactness {

struct Options {
  std::string model;
  uint64_t seed = 1;
  uint32_t count = 100;  ///< Requests.
  uint32_t rounds = 1;   ///< How often each request runs in a batch.
  uint32_t batch = 32;   ///< Requests of one batch, at most.
  /// Fastest last; empty: all of this machine but `portable`, which is a hundred times slower.
  std::vector<kernels::Isa> isas;
  /// Where back ends come from; the harness's own test puts a wrong one in.
  std::function<std::shared_ptr<kernels::Ops>(kernels::Isa)> make_ops;
  CaseLimits limits;  ///< `vocab` is the model's.
};

struct Report {
  Tally tally;
  Disturbances disturbances;
  std::vector<std::string> failures;  ///< The first ones: seed, request, axes.
};

/// `progress` may be null; gets a line for each batch.
Result<Report> run(const Options& options, std::ostream* progress);

}  // namespace outrider::exactness
