#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "base/philox.hpp"
#include "kernels/cuda/cuda_ops.hpp"
#include "kernels/cuda/emulated_device.hpp"
#include "model/transformer.hpp"
#include "tests/exactness/device_engine.test.hpp"
#include "tests/exactness/forwarding_ops.test.hpp"
#include "tests/support/models.hpp"

/// Steps that a device runs as graphs have the bits of steps that run by calls.
namespace outrider::exactness {
namespace {

using kernels::KvKind;
using kernels::cuda::EmulatedCounters;

constexpr uint64_t k_seed = 0x6AF1;
constexpr uint32_t k_blocks = 400;
constexpr uint32_t k_context = 640;

/// An emulated device; without graphs, as ForwardingOps does not say where a step begins.
std::shared_ptr<kernels::Ops> device(bool with_graphs, kernels::cuda::EmulatedTraits traits) {
  auto ops = kernels::cuda::make_ops(kernels::cuda::make_emulated_device(traits), 1);
  if (with_graphs) return ops;
  return std::make_shared<ForwardingOps>(std::move(ops));
}

struct Setting {
  const char* model = "tiny-llama";
  kernels::KvKinds kinds = {KvKind::fp32, KvKind::fp32};
  uint32_t window = 0;
  uint32_t graphs_max = UINT32_MAX;
};

/// A transformer with a pool of noise, or two that take turns.
struct Side {
  Side(bool with_graphs, const Setting& setting)
      : ops(device(
            with_graphs,
            {.multiprocessors = 132, .graphs_max = setting.graphs_max, .counters = &counters})),
        loaded(testing_support::load_tiny(setting.model, ops)),
        geometry(model::kv_geometry(loaded->config, 16, setting.kinds)),
        pool(ops->allocate(k_blocks * geometry.block_bytes())) {
    geometry.window = setting.window;
    renew(0);
    if (setting.kinds.k != KvKind::fp32) return;  // codes, of zeros
    Random random(k_seed);
    std::vector<float> noise(k_blocks * geometry.block_bytes() / sizeof(float));
    for (float& x : noise) x = random.uniform() - 0.5f;
    ops->upload(std::as_bytes(std::span(noise)), pool.get());
  }

  void renew(size_t which) {
    transformers[which].reset();
    transformers[which].emplace(
        loaded, geometry,
        model::Transformer::Sizes{
            .rows = 64, .logit_rows = 64, .sequences = 16, .positions = k_context});
  }
  std::vector<float> step(const model::StepBatch& batch) {
    model::Transformer& transformer = *transformers[transformers[1] ? turn++ % 2 : 0];
    transformer.forward(batch, pool.get());
    std::vector<uint32_t> rows(batch.ids.size());
    std::iota(rows.begin(), rows.end(), 0u);
    const std::span<const float> logits = transformer.logits(rows);
    return {logits.begin(), logits.end()};
  }
  std::vector<std::byte> pool_bytes() const {
    std::vector<std::byte> bytes(k_blocks * geometry.block_bytes());
    ops->download(pool.get(), bytes);
    return bytes;
  }

  EmulatedCounters counters;
  std::shared_ptr<kernels::Ops> ops;
  std::shared_ptr<const model::LoadedModel> loaded;
  kernels::KvGeometry geometry;
  kernels::Ops::Buffer pool;
  std::optional<model::Transformer> transformers[2];
  uint64_t turn = 0;
};

/// Sequences that grow in a pool whose blocks move, on both sides.
class Growing {
 public:
  explicit Growing(const Setting& setting) : graphs(true, setting), calls(false, setting) {
    for (int32_t block = 0; block < static_cast<int32_t>(k_blocks); ++block) {
      free_.push_back(block);
    }
  }

  void begin(uint32_t sequences) {
    for (Sequence& s : sequences_) {
      free_.insert(free_.end(), s.table.begin(), s.table.end());
    }
    sequences_.assign(sequences, {});
    constexpr uint32_t k_lengths[] = {0, 90, 120, 250, 372, 500};
    for (Sequence& s : sequences_) {
      s.length = k_lengths[random_.below(6)] + random_.below(10);
      while (s.table.size() * 16 < s.length + 60) s.table.push_back(take_block());
    }
  }

  /// Rows of each sequence, at most, of which one at least stays.
  void step(uint32_t rows_max) {
    std::vector<int32_t> ids, positions;
    std::vector<kernels::Segment> segments;
    for (Sequence& s : sequences_) {
      const uint32_t rows = 1 + random_.below(rows_max);
      segments.push_back({s.table.data(), static_cast<uint32_t>(ids.size()), rows, s.length});
      for (uint32_t i = 0; i < rows; ++i) {
        ids.push_back(static_cast<int32_t>(random_.below(512)));
        positions.push_back(static_cast<int32_t>(s.length + i));
      }
      s.length += 1 + random_.below(rows);
    }
    const model::StepBatch batch = {ids, positions, segments};
    const std::vector<float> logits = graphs.step(batch), expected = calls.step(batch);
    ASSERT_EQ(logits.size(), expected.size());
    ASSERT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0)
        << "seed " << k_seed << ", " << ids.size() << " rows of " << segments.size();
  }

  /// One block of one sequence goes elsewhere.
  void move_block() {
    Sequence& s = sequences_[random_.below(static_cast<uint32_t>(sequences_.size()))];
    int32_t& block = s.table[random_.below(static_cast<uint32_t>(s.table.size()))];
    const int32_t to = take_block();
    for (Side* side : {&graphs, &calls}) {
      side->ops->copy_block(side->geometry, block, to, side->pool.get());
    }
    free_.push_back(std::exchange(block, to));
  }

  Side graphs, calls;

 private:
  struct Sequence {
    std::vector<int32_t> table;
    uint32_t length = 0;
  };
  int32_t take_block() {
    std::swap(free_[random_.below(static_cast<uint32_t>(free_.size()))], free_.back());
    const int32_t block = free_.back();
    free_.pop_back();
    return block;
  }

  Random random_{k_seed};
  std::vector<int32_t> free_;
  std::vector<Sequence> sequences_;
};

void play(Growing& world, uint32_t phases) {
  constexpr uint32_t k_sequences[] = {1, 3, 8, 2, 5, 11};
  for (uint32_t phase = 0; phase < phases; ++phase) {
    world.begin(k_sequences[phase % 6]);
    for (uint32_t i = 0; i < 7; ++i) {
      ASSERT_NO_FATAL_FAILURE(world.step(phase % 3 == 2 ? 4 : 1));
      if (i % 2 == 0) world.move_block();
    }
  }
  EXPECT_EQ(world.graphs.pool_bytes(), world.calls.pool_bytes());
  EXPECT_EQ(world.calls.counters.graphs, 0u);
}

TEST(Exactness, AnEmulatedDevicesGraphsHaveTheBitsOfCalls) {
  const std::pair<Setting, uint32_t> cases[] = {{{}, 6},
                                                {{.model = "tiny-qwen2"}, 2},
                                                {{.window = 150}, 2},
                                                {{.kinds = {KvKind::q8_0, KvKind::q4_0}}, 2}};
  for (const auto& [setting, phases] : cases) {
    Growing world(setting);
    play(world, phases);
    EXPECT_GE(world.graphs.counters.graphs, phases);
    EXPECT_GE(world.graphs.counters.replays, 3 * phases);
  }
}

/// Others of the same sizes: in their place, perhaps at their addresses, or beside them.
TEST(Exactness, AnEmulatedDevicesGraphsAreOfOneTransformer) {
  Growing world({});
  play(world, 2);
  for (Side* side : {&world.graphs, &world.calls}) side->renew(0);
  play(world, 2);
  for (Side* side : {&world.graphs, &world.calls}) side->renew(1);
  const uint64_t replays = world.graphs.counters.replays;
  play(world, 2);
  EXPECT_GT(world.graphs.counters.replays, replays);
}

TEST(Exactness, AnEmulatedDeviceWithoutMemoryForGraphsGivesTheSameBits) {
  Growing world({.graphs_max = 2});
  play(world, 3);
  EXPECT_EQ(world.graphs.counters.graphs, 2u);
}

GenerationRequest request_of(Random& random) {
  GenerationRequest request;
  for (uint32_t i = 3 + random.below(30); i > 0; --i) {
    request.prompt.push_back(static_cast<int32_t>(random.below(512)));
  }
  request.sampling.seed = random.next_u64();
  request.sampling.temperature = random.chance(0.5f) ? 0.0f : 0.8f;
  request.logprobs = random.chance(0.5f) ? 2 : -1;
  request.stop.max_tokens = 6 + random.below(10);
  request.stop.ignore_eos = true;
  return request;
}

/// Requests come while others run, some drafted for, some preempted: with the same steps.
Transcript play_engine(bool with_graphs, EmulatedCounters& counters) {
  model::EngineOptions options = DeviceEngine::small();
  options.batch_tokens = 40;
  options.speculation = {.ngram = true, .depth_max = 3, .fixed_depth = true};
  DeviceEngine world(device(with_graphs, {.counters = &counters}), options);
  Random random(k_seed);
  for (uint32_t step = 0; step < 12 || !world.engine->idle(); ++step) {
    if (step < 12) world.submit(request_of(random));
    if (step == 9) world.engine->preempt_all();
    const uint64_t allocations = counters.allocations;
    world.step();
    EXPECT_EQ(counters.allocations, allocations) << "a step allocated";
  }
  return world.transcript;
}

TEST(Exactness, AnEmulatedDevicesGraphsChangeNoAnswer) {
  EmulatedCounters graphs, calls;
  const Transcript expected = play_engine(false, calls);
  expect_same(play_engine(true, graphs), expected);
  EXPECT_GT(graphs.replays, 5u);
  EXPECT_EQ(calls.replays, 0u);
  EXPECT_LT(graphs.kernels, calls.kernels);
}

}  // namespace
}  // namespace outrider::exactness
