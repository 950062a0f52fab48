#include "tests/support/reference_engine.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.hpp"
#include "kernels/cuda/cuda_ops.hpp"
#include "kernels/cuda/emulated_device.hpp"
#include "model/generator.hpp"
#include "model/kv_cache.hpp"
#include "model/transformer.hpp"
#include "tests/support/models.hpp"

namespace outrider::testing_support {
namespace {

constexpr uint32_t k_context = 128;

class Reference : public ::testing::TestWithParam<const char*> {
 protected:
  Reference()
      : judged(load_tiny(GetParam(), kernels::make_ref_ops())),
        fast(load_tiny(GetParam(), kernels::make_cpu_ops(2, kernels::default_isa()))),
        reference(judged, k_context) {}

  std::vector<int32_t> prompt(Random& random, uint32_t tokens) const {
    std::vector<int32_t> out(tokens);
    for (int32_t& id : out) id = static_cast<int32_t>(random.below(judged->config.vocab));
    return out;
  }

  void expect_close_logits(const std::shared_ptr<const model::LoadedModel>& other,
                           double tolerance);

  std::shared_ptr<const model::LoadedModel> judged;
  std::shared_ptr<const model::LoadedModel> fast;
  ReferenceEngine reference;
};

TEST_P(Reference, OneUpdateEqualsManyAndCropUndoesOne) {
  Random random(1);
  const std::vector<int32_t> ids = prompt(random, 40);
  const Logits whole = reference.prefill(ids);
  reference.prefill(std::span(ids).first(10));
  reference.update(std::span(ids).subspan(10, 15));
  reference.update(prompt(random, 7));
  reference.crop(25);
  const Logits parts = reference.update(std::span(ids).subspan(25)).back();
  EXPECT_EQ(whole, parts);
  EXPECT_EQ(reference.length(), 40u);
}

TEST_P(Reference, DraftsChangeNoTokenWhateverTheyAre) {
  Random random(2);
  const std::vector<int32_t> ids = prompt(random, 20);
  const std::vector<int32_t> plain = greedy(reference, ids, 40);
  const auto oracle = [&](std::span<const int32_t> output) {
    const size_t at = output.size();
    const size_t count = std::min<size_t>(random.below(6), plain.size() - at);
    std::vector<int32_t> draft(plain.begin() + static_cast<std::ptrdiff_t>(at),
                               plain.begin() + static_cast<std::ptrdiff_t>(at + count));
    if (!draft.empty() && random.chance(0.5f)) draft.back() ^= 1;
    return draft;
  };
  EXPECT_EQ(greedy_with_drafts(reference, ids, 40, oracle), plain);
}

/// The network itself: paged cache, ragged chunks, fast kernels.
void Reference::expect_close_logits(const std::shared_ptr<const model::LoadedModel>& other,
                                    double tolerance) {
  Random random(3);
  const model::ModelConfig& config = other->config;
  const kernels::KvGeometry geometry =
      model::kv_geometry(config, 16, {kernels::KvKind::fp32, kernels::KvKind::fp32});
  auto cache = std::move(model::KvCache::create(other->ops, geometry, 16)).value();
  model::Transformer transformer(other, geometry,
                                 {.rows = 64, .logit_rows = 64, .positions = k_context});
  const std::vector<int32_t> ids = prompt(random, 60);
  reference.crop(0);
  const std::vector<Logits> expected = reference.update(ids);
  model::KvSequence sequence(*cache);
  while (sequence.length() < ids.size()) {
    const uint32_t first = sequence.length();
    const uint32_t rows = std::min(1 + random.below(20), static_cast<uint32_t>(ids.size()) - first);
    ASSERT_TRUE(sequence.append(rows));
    std::vector<int32_t> positions(rows);
    std::vector<uint32_t> all(rows);
    for (uint32_t i = 0; i < rows; ++i) {
      positions[i] = static_cast<int32_t>(first + i);
      all[i] = i;
    }
    const kernels::Segment segment = {sequence.table().data(), 0, rows, first};
    transformer.forward({std::span(ids).subspan(first, rows), positions, {&segment, 1}},
                        cache->memory());
    const std::span<const float> logits = transformer.logits(all);
    for (uint32_t i = 0; i < rows; ++i) {
      double squares = 0;
      double worst = 0;
      for (size_t t = 0; t < config.vocab; ++t) {
        const double want = expected[first + i][t];
        squares += want * want;
        worst = std::max(worst, std::abs(want - logits[i * config.vocab + t]));
      }
      const double scale = std::sqrt(squares / config.vocab);
      EXPECT_LT(worst, tolerance * scale) << "position " << first + i;
    }
  }
}

/// Activations are rounded some dozen times on the way, each to a 65534th of its row's range.
TEST_P(Reference, TheTransformerGivesTheSameLogitsInAnyChunks) {
  expect_close_logits(fast, 2e-3);
}

/// Each to 11 bits; on a device whose memory the host cannot touch.
TEST_P(Reference, TheTransformerOnAnEmulatedDeviceGivesTheSameLogitsInAnyChunks) {
  std::shared_ptr<kernels::Ops> ops =
      kernels::cuda::make_ops(kernels::cuda::make_emulated_device(), 1);
  expect_close_logits(load_tiny(GetParam(), std::move(ops)), 2e-2);
}

TEST_P(Reference, TheEngineWritesTheSameGreedyTokens) {
  Random random(4);
  model::EngineOptions options;
  options.context_tokens = k_context;
  options.batch_tokens = 24;
  options.kv_memory_bytes = uint64_t{8} << 20;
  options.kv_kinds = {kernels::KvKind::fp32, kernels::KvKind::fp32};
  auto generator = std::move(model::Generator::create(fast, options)).value();
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 12; ++i) {
    GenerationRequest request;
    request.prompt = prompt(random, 1 + random.below(60));
    request.sampling.temperature = 0;
    request.stop.max_tokens = 32;
    request.stop.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  const auto results = generator->generate_batch(requests);
  ASSERT_TRUE(results.ok()) << results.error().message;
  for (size_t i = 0; i < requests.size(); ++i) {
    std::vector<int32_t> ids;
    for (const TokenOut& token : (*results)[i][0].tokens) ids.push_back(token.id);
    EXPECT_EQ(ids, greedy(reference, requests[i].prompt, 32)) << i;
  }
}

/// Neither the host's memory nor the device's: it is reserved when the engine is made.
TEST_P(Reference, AStepOnADeviceAllocatesNothing) {
  kernels::cuda::EmulatedCounters counters;
  std::shared_ptr<kernels::Ops> ops = kernels::cuda::make_ops(
      kernels::cuda::make_emulated_device({.multiprocessors = 132, .counters = &counters}), 1);
  const SteadyClock clock;
  model::EngineOptions options;
  options.context_tokens = 192;
  options.batch_tokens = 80;
  options.sequences = 4;
  options.kv_memory_bytes = uint64_t{8} << 20;
  options.decode_plan.is_automatic = false;
  auto engine = model::Engine::create(load_tiny(GetParam(), std::move(ops)), options, clock);
  ASSERT_TRUE(engine) << engine.error().message;
  const uint64_t before = counters.allocations;
  EXPECT_GT(before, 0u);
  Random random(9);
  for (uint32_t i = 0; i < 5; ++i) {
    GenerationRequest request;
    request.prompt = prompt(random, 10 + 35 * i);
    request.stop.max_tokens = 6;
    request.stop.ignore_eos = true;
    ASSERT_TRUE((*engine)->submit({1, i}, std::move(request)));
  }
  while (!(*engine)->idle()) (*engine)->step();
  EXPECT_EQ(counters.allocations, before);
}

INSTANTIATE_TEST_SUITE_P(TinyModels, Reference, ::testing::Values("tiny-llama", "tiny-qwen2"),
                         [](const auto& model) { return std::string(model.param).substr(5); });

}  // namespace
}  // namespace outrider::testing_support
