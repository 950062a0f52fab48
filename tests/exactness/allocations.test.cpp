#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <new>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "model/engine.hpp"

namespace {
std::atomic<uint64_t> allocations = 0;

void* counted(size_t bytes) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
}  // namespace

// All that end in one of the deletes below.
void* operator new(size_t bytes) {
  if (void* memory = counted(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new[](size_t bytes) {
  return operator new(bytes);
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace outrider::exactness {
namespace {

/// The median of decode steps: some fill a block or grow a list.
uint64_t allocations_of_a_step(uint32_t requests, const SamplingParams& sampling) {
  const SteadyClock clock;
  auto model = model::load_model("tests/support/models/tiny-llama.gguf",
                                 kernels::make_cpu_ops(1, kernels::default_isa()));
  OUTRIDER_CHECK(model.ok(), model.error().message);
  model::EngineOptions options;
  options.kv_memory_bytes = uint64_t{8} << 20;
  auto engine = model::Engine::create(*model, options, clock);
  OUTRIDER_CHECK(engine.ok(), engine.error().message);
  for (uint32_t i = 0; i < requests; ++i) {
    GenerationRequest request;
    request.prompt = {1, 2, static_cast<int32_t>(3 + i)};
    request.sampling = sampling;
    request.stop.max_tokens = 64;
    request.stop.ignore_eos = true;
    OUTRIDER_CHECK((*engine)->submit({i, 0}, std::move(request)).ok());
  }
  std::array<uint64_t, 40> counts{};
  for (uint64_t& count : counts) {
    const uint64_t before = allocations;
    OUTRIDER_CHECK((*engine)->step().size() == requests);
    count = allocations - before;
  }
  std::ranges::nth_element(counts, counts.begin() + counts.size() / 2);
  return counts[counts.size() / 2];
}

/// What is left is the plan's lists and the tokens that are handed out.
TEST(Allocations, ADecodeStepAllocatesForItsPlanAndItsTokensOnly) {
  SamplingParams greedy;
  greedy.temperature = 0;
  SamplingParams filtered;
  filtered.top_k = 20;
  filtered.top_p = 0.9f;
  filtered.min_p = 0.01f;
  for (const SamplingParams& sampling : {greedy, SamplingParams{}, filtered}) {
    EXPECT_LE(allocations_of_a_step(1, sampling), 1u + 4u);
    EXPECT_LE(allocations_of_a_step(8, sampling), 8u + 10u) << "lists grow by doubling";
  }
}

}  // namespace
}  // namespace outrider::exactness
