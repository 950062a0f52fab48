// Speed of the CPU kernels at SmolLM2-135M's shapes: matmul by rows, a whole model's weights, and
// attention by depth. GFLOP/s where arithmetic limits, GB/s where reading does.
//   kernels_bench --benchmark_filter=matmul   (OUTRIDER_ISA and OUTRIDER_THREADS choose the
//   kernels)

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <iterator>
#include <memory>
#include <vector>

#include "base/philox.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels {
namespace {

uint32_t thread_count() {
  const char* value = std::getenv("OUTRIDER_THREADS");
  return value == nullptr ? 2 : static_cast<uint32_t>(std::max(1, std::atoi(value)));
}

Ops& cpu() {
  static const std::unique_ptr<Ops> ops = make_cpu_ops(thread_count(), default_isa());
  return *ops;
}

struct Shape {
  WeightType type;
  size_t n;
  size_t k;
};

std::unique_ptr<Matrix> random_matrix(const Shape& shape) {
  const WeightTypeInfo& info = *weight_type_info(shape.type);
  std::vector<std::byte> bytes(shape.n * shape.k / info.block_elements * info.block_bytes);
  Random random(shape.n * shape.k);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.next_u32());
  // Small positive scales: infinities would only slow things down.
  for (size_t at = 0; at < bytes.size(); at += info.block_bytes) {
    for (const size_t high : {1u, 3u}) bytes[at + high] = std::byte{0x20};
  }
  return cpu().pack({shape.type, bytes.data(), shape.n, shape.k});
}

std::vector<float> random_floats(size_t n) {
  Random random(n);
  std::vector<float> out(n);
  for (float& v : out) v = random.uniform() - 0.5f;
  return out;
}

void set_flops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void set_bytes(benchmark::State& state, double bytes) {
  state.counters["GB/s"] =
      benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void bench_matmul(benchmark::State& state, const Shape& shape) {
  const auto m = static_cast<size_t>(state.range(0));
  const auto matrix = random_matrix(shape);
  const std::vector<float> x = random_floats(m * shape.k);
  std::vector<float> y(m * shape.n);
  for (auto _ : state) {
    const Product product = {.w = matrix.get(), .y = y.data()};
    cpu().matmul({x.data()}, m, {&product, 1});
    benchmark::DoNotOptimize(y.data());
  }
  set_flops(state, 2.0 * static_cast<double>(m * shape.n * shape.k));
  set_bytes(state, static_cast<double>(matrix->bytes()));
}

/// All matrices of SmolLM2-135M in the order of a step, each read from memory once.
void bench_model(benchmark::State& state) {
  const auto m = static_cast<size_t>(state.range(0));
  std::vector<std::unique_ptr<Matrix>> matrices;
  const auto add = [&](WeightType type, size_t n, size_t k) {
    matrices.push_back(random_matrix({type, n, k}));
  };
  for (int layer = 0; layer < 30; ++layer) {
    for (const size_t n : {576u, 192u, 192u, 576u, 1536u, 1536u}) add(WeightType::q4_1, n, 576);
    add(WeightType::q4_1, 576, 1536);
  }
  if (m <= 32) add(WeightType::q8_0, 49152, 576);  // prefill computes the head for one row only
  double flops = 0;
  double bytes = 0;
  for (const auto& w : matrices) {
    flops += 2.0 * static_cast<double>(m * w->rows() * w->cols());
    bytes += static_cast<double>(w->bytes());
  }
  const std::vector<float> x = random_floats(m * 1536);
  std::vector<float> y(m * 49152);
  for (auto _ : state) {
    for (const auto& w : matrices) {
      const Product product = {.w = w.get(), .y = y.data()};
      cpu().matmul({x.data()}, m, {&product, 1});
    }
    benchmark::DoNotOptimize(y.data());
  }
  set_flops(state, flops);
  set_bytes(state, bytes);
}

/// Attention of one sequence in a model.
struct AttentionShape {
  uint32_t layers;
  uint32_t heads;
  uint32_t kv_heads;
  uint32_t head_dim;
};

/// All layers of a model, `rows` rows after `depth`, keys and values of one kind.
void bench_attention(benchmark::State& state, AttentionShape shape) {
  const auto rows = static_cast<uint32_t>(state.range(0));
  const auto depth = static_cast<uint32_t>(state.range(1));
  const KvKind kind = k_kv_kinds[state.range(2)];
  state.SetLabel(std::string(kv_kind_name(kind)));
  const KvGeometry geometry = {.layers = shape.layers,
                               .kv_heads = shape.kv_heads,
                               .head_dim = shape.head_dim,
                               .block_tokens = 16,
                               .k_kind = kind,
                               .v_kind = kind};
  const uint32_t length = depth + rows;
  const uint32_t blocks = (length + 15) / 16;
  // 7 and the number of blocks share no factor: neighbours in the sequence are apart in memory.
  std::vector<int32_t> table(blocks);
  const uint32_t step = blocks % 7 == 0 ? 5 : 7;
  for (uint32_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(i * step % blocks);
  const Ops::Buffer pool = cpu().allocate(blocks * geometry.block_bytes());
  const std::vector<float> kv = random_floats(length * shape.kv_heads * shape.head_dim);
  const Segment all = {table.data(), 0, length, 0};
  for (uint32_t layer = 0; layer < geometry.layers; ++layer) {
    cpu().kv_append(geometry, layer, {&all, 1}, kv.data(), kv.data(), pool.get());
  }
  const std::vector<float> q = random_floats(rows * shape.heads * shape.head_dim);
  std::vector<float> out(q.size());
  const Segment segment = {table.data(), 0, rows, depth};
  for (auto _ : state) {
    for (uint32_t layer = 0; layer < geometry.layers; ++layer) {
      cpu().attention(geometry, layer, {&segment, 1}, q.data(), shape.heads, 0.125f, pool.get(),
                      out.data());
      benchmark::DoNotOptimize(out.data());
    }
  }
  const double positions = rows * (depth + (rows + 1) / 2.0) * geometry.layers;
  set_flops(state, 4.0 * positions * shape.heads * shape.head_dim);
  set_bytes(state, static_cast<double>(blocks * geometry.block_bytes()));
}

void rows_of_a_step(benchmark::internal::Benchmark* b) {
  for (const int64_t m : {1, 8, 128, 512}) b->Arg(m);
  b->UseRealTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(bench_matmul, q4_1_576x576, Shape{WeightType::q4_1, 576, 576})
    ->Apply(rows_of_a_step);
BENCHMARK_CAPTURE(bench_matmul, q4_1_1536x576, Shape{WeightType::q4_1, 1536, 576})
    ->Apply(rows_of_a_step);
BENCHMARK_CAPTURE(bench_matmul, q4_1_576x1536, Shape{WeightType::q4_1, 576, 1536})
    ->Apply(rows_of_a_step);
BENCHMARK_CAPTURE(bench_matmul, q8_0_49152x576, Shape{WeightType::q8_0, 49152, 576})
    ->Apply(rows_of_a_step);
BENCHMARK_CAPTURE(bench_matmul, q4_k_1536x1536, Shape{WeightType::q4_k, 1536, 1536})
    ->Apply(rows_of_a_step);
BENCHMARK_CAPTURE(bench_matmul, q6_k_1536x1536, Shape{WeightType::q6_k, 1536, 1536})
    ->Apply(rows_of_a_step);
BENCHMARK(bench_model)
    ->Arg(1)
    ->Arg(4)
    ->Arg(8)
    ->Arg(32)
    ->Arg(128)
    ->Arg(512)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void rows_and_depths(benchmark::internal::Benchmark* b) {
  const auto kinds = benchmark::CreateDenseRange(0, std::size(k_kv_kinds) - 1, 1);
  b->ArgsProduct({{1}, {128, 1024, 4096}, kinds});
  b->ArgsProduct({{8}, {1024, 4096}, kinds});
  b->ArgsProduct({{512}, {0, 3584}, kinds});
  b->UseRealTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(bench_attention, smollm2_135m, AttentionShape{30, 9, 3, 64})
    ->Apply(rows_and_depths);
BENCHMARK_CAPTURE(bench_attention, qwen2_5_0_5b, AttentionShape{24, 14, 2, 64})
    ->Apply(rows_and_depths);
BENCHMARK_CAPTURE(bench_attention, qwen2_5_1_5b, AttentionShape{28, 12, 2, 128})
    ->Apply(rows_and_depths);

}  // namespace
}  // namespace outrider::kernels

BENCHMARK_MAIN();
