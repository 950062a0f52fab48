#include "tools/bench_run.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/transformer.hpp"
#include "tools/load_metrics.hpp"

namespace outrider::tools {
namespace {

/// Plain reads of one repetition, spread over its steps.
constexpr uint32_t k_reads_per_sample = 4;

template <class Value>
double median(std::span<const BenchSample> samples, Value value) {
  std::vector<double> values;
  for (const BenchSample& sample : samples) values.push_back(value(sample));
  std::sort(values.begin(), values.end());
  return percentile(values, 0.5);
}

}  // namespace

double BenchRow::deviation_per_s() const {
  if (samples_per_s.size() < 2) return 0;
  const auto count = static_cast<double>(samples_per_s.size());
  const double mean = std::accumulate(samples_per_s.begin(), samples_per_s.end(), 0.0) / count;
  double squares = 0;
  for (const double sample : samples_per_s) squares += (sample - mean) * (sample - mean);
  return std::sqrt(squares / (count - 1));
}

BenchRow bench_row(const BenchCase& bench, const ModelCost& cost,
                   std::span<const BenchSample> samples) {
  OUTRIDER_CHECK(!samples.empty());
  const double operations = cost.operations(bench);
  BenchRow row;
  row.bench = bench;
  row.repetitions = static_cast<uint32_t>(samples.size());
  row.steps = samples.front().steps;
  const double seconds = median(samples, [](const BenchSample& s) { return s.seconds; });
  row.tokens_per_s = static_cast<double>(bench.tokens()) / seconds;
  for (const BenchSample& sample : samples) {
    row.samples_per_s.push_back(static_cast<double>(bench.tokens()) / sample.seconds);
  }
  row.ms_per_step = seconds * 1e3 / row.steps;
  row.operations_per_s = operations / seconds;
  row.dot8_per_s = median(samples, [](const BenchSample& s) { return s.dot8_per_s; });
  row.dot16_per_s = median(samples, [](const BenchSample& s) { return s.dot16_per_s; });
  row.dot8_share =
      median(samples, [&](const BenchSample& s) { return operations / s.seconds / s.dot8_per_s; });
  row.dot16_share =
      median(samples, [&](const BenchSample& s) { return operations / s.seconds / s.dot16_per_s; });
  if (bench.is_prefill()) return row;
  row.step_bytes = cost.step_bytes(bench);
  row.bytes_per_s = row.step_bytes * row.steps / seconds;
  row.plain_read_per_s = median(
      samples, [&](const BenchSample& s) { return cost.step_bytes(s.bench) / s.read_seconds; });
  row.read_share =
      median(samples, [](const BenchSample& s) { return s.read_seconds * s.steps / s.seconds; });
  return row;
}

BenchRunner::BenchRunner(std::shared_ptr<const model::LoadedModel> model, uint32_t batch_tokens,
                         const Clock& clock)
    : model_(std::move(model)),
      batch_tokens_(batch_tokens),
      clock_(clock),
      limits_(model_->ops->threads(), kernels::default_isa(), clock) {}

Result<std::unique_ptr<BenchRunner>> BenchRunner::create(
    std::shared_ptr<const model::LoadedModel> model, model::EngineOptions options,
    std::span<const BenchCase> cases, uint32_t repetitions, const Clock& clock) {
  auto geometry = model::kv_geometry(model->config, options.block_tokens, options.kv_kinds);
  geometry.window = options.local_window;
  uint64_t blocks = 0;
  uint32_t batch = 1;
  uint32_t longest = 0;
  for (const BenchCase& bench : cases) {
    const uint32_t tokens =
        BenchLayout::of(bench, repetitions, model->config.context_length).sequence_tokens(bench);
    blocks = std::max<uint64_t>(blocks, bench.batch * (tokens / options.block_tokens + 1));
    batch = std::max(batch, bench.batch);
    longest = std::max(longest, tokens);
  }
  options.kv_memory_bytes = (blocks + 1) * geometry.block_bytes();
  options.context_tokens = longest;
  options.sequences = batch;
  options.waiting = batch;
  auto runner =
      std::unique_ptr<BenchRunner>(new BenchRunner(std::move(model), options.batch_tokens, clock));
  runner->cost_ = ModelCost::of(*runner->model_, geometry);
  OUTRIDER_ASSIGN(runner->engine_, model::Engine::create(runner->model_, options, clock));
  return runner;
}

Result<RequestKey> BenchRunner::submit_filled(const BenchCase& bench, uint32_t max_tokens) {
  GenerationRequest request;
  for (uint32_t i = 0; i < bench.prompt_tokens(); ++i) {
    request.prompt.push_back(static_cast<int32_t>(random_.below(model_->config.vocab)));
  }
  request.sampling.temperature = 0;
  request.stop.max_tokens = max_tokens;
  request.stop.ignore_eos = true;
  const RequestKey key{++sessions_, 0};
  OUTRIDER_TRY(engine_->submit(key, std::move(request)));
  for (uint32_t filled = 0; filled < bench.depth;) {
    engine_->set_batch_tokens(std::min(batch_tokens_, bench.depth - filled));
    const uint64_t before = engine_->stats().rows;
    engine_->step();
    tell_();
    const uint64_t rows = engine_->stats().rows - before;
    OUTRIDER_CHECK(rows > 0, bench.name(), filled);
    filled += static_cast<uint32_t>(rows);
  }
  engine_->set_parked(key, true);
  return key;
}

Result<void> BenchRunner::fill(const BenchCase& bench, uint32_t repetitions) {
  const uint32_t max_tokens = bench.is_prefill() ? 1 : bench.generate * repetitions;
  std::vector<RequestKey> keys(bench.batch);
  for (RequestKey& key : keys) OUTRIDER_ASSIGN(key, submit_filled(bench, max_tokens));
  engine_->set_batch_tokens(batch_tokens_);
  for (const RequestKey key : keys) engine_->set_parked(key, false);
  return {};
}

BenchSample BenchRunner::measure(const BenchCase& bench) {
  BenchSample sample;
  sample.bench = bench;
  const auto bytes = static_cast<size_t>(cost_.step_bytes(bench));
  const uint32_t read_every = std::max(1u, bench.generate / k_reads_per_sample);
  uint32_t reads = 0;
  if (!bench.is_prefill()) limits_.read_seconds(bytes);  // maps the memory
  const uint64_t first_row = engine_->stats().rows;
  while (engine_->stats().rows - first_row < bench.tokens()) {
    const TimePoint start = clock_.now();
    engine_->step();
    sample.seconds += to_seconds(clock_.now() - start);
    ++sample.steps;
    tell_();
    if (!bench.is_prefill() && sample.steps % read_every == 0) {
      sample.read_seconds += limits_.read_seconds(bytes);
      ++reads;
    }
  }
  const uint64_t rows = engine_->stats().rows - first_row;
  OUTRIDER_CHECK(rows == bench.tokens(), bench.name(), rows);
  if (reads > 0) sample.read_seconds /= reads;
  sample.dot8_per_s = limits_.dot_operations_per_s(MachineLimits::Dot::int8);
  sample.dot16_per_s = limits_.dot_operations_per_s(MachineLimits::Dot::int16);
  return sample;
}

Result<std::vector<BenchSample>> BenchRunner::run(const BenchCase& bench, uint32_t repetitions,
                                                  const Progress& progress) {
  const auto layout = BenchLayout::of(bench, repetitions, model_->config.context_length);
  const uint64_t fillings = (repetitions + layout.per_filling - 1) / layout.per_filling;
  const uint64_t total = fillings * bench.batch * layout.first_depth + repetitions * bench.tokens();
  tell_ = [&, first = engine_->stats().rows] {
    if (progress) progress(engine_->stats().rows - first, total);
  };
  std::vector<BenchSample> samples;
  while (samples.size() < repetitions) {
    BenchCase next = bench;
    next.depth = layout.first_depth;
    OUTRIDER_TRY(fill(next, layout.per_filling));
    for (uint32_t i = 0; i < layout.per_filling; ++i, next.depth += bench.generate) {
      samples.push_back(measure(next));
    }
    OUTRIDER_CHECK(engine_->idle(), bench.name());
  }
  return samples;
}

}  // namespace outrider::tools
