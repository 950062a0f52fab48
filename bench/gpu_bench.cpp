// What the kernels of a GPU reach of its limits, both measured in this run: decoding and verifying
// against the memory's bandwidth, prefill against cuBLAS where the machine has it. Shapes of
// Llama-3-8B.
//   gpu_bench [device number [WORDS]]
// With WORDS only the lines that begin so: "Q4_0 14336 x 4096 8", "attention fp16 64".

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/philox.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels {
namespace {

constexpr uint32_t k_hidden = 4096;
constexpr uint32_t k_ffn = 14336;
/// So many bytes do not fit into any cache.
constexpr size_t k_cold_bytes = size_t{400} << 20;

class Bench {
 public:
  Bench(std::unique_ptr<Ops> ops, std::string only)
      : ops_(std::move(ops)), only_(std::move(only)), probe_(ops_->allocate(4)) {}

  void run() {
    std::printf("%.*s\n", static_cast<int>(ops_->description().size()), ops_->description().data());
    bandwidth_ = copy_bandwidth();
    std::printf("memory: %.0f GB/s read and written by copies\n", bandwidth_ * 1e-9);
    decode();
    attention();
    prefill();
  }

 private:
  /// Whether a line of these words is asked for, or one that begins with them.
  bool wanted(const std::string& words) const {
    return words.starts_with(only_) || only_.starts_with(words);
  }

  /// Seconds of one call, of many that follow each other; `turn` counts them.
  double seconds(const std::function<void(size_t turn)>& call) {
    return seconds(call, [&] {
      std::byte bytes[4];
      ops_->download(probe_.get(), bytes);
    });
  }
  double seconds(const std::function<void(size_t turn)>& call, const std::function<void()>& wait) {
    size_t turn = 0;
    for (size_t count = 2;; count *= 2) {
      wait();
      const TimePoint start = clock_.now();
      for (size_t i = 0; i < count; ++i) call(turn++);
      wait();
      const double taken = to_seconds(clock_.now() - start);
      if (taken > 0.1) return taken / static_cast<double>(count);
    }
  }

  std::vector<std::byte> random_bytes(const WeightTypeInfo& info, size_t elements) {
    std::vector<std::byte> bytes(elements / info.block_elements * info.block_bytes);
    Random random(elements);
    for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      const uint32_t draw = random.next_u32();
      std::memcpy(&bytes[i], &draw, 4);
    }
    // Small positive numbers where a half or a float ends: no infinities.
    const size_t step = info.block_elements == 1 ? info.block_bytes : 2;
    for (size_t at = step - 1; at < bytes.size(); at += step) bytes[at] &= std::byte{0x3F};
    return bytes;
  }
  /// Equal matrices, so many that each is cold when its turn comes.
  std::vector<std::unique_ptr<Matrix>> matrices(WeightType type, size_t n, size_t k) {
    const auto bytes = random_bytes(*weight_type_info(type), n * k);
    std::vector<std::unique_ptr<Matrix>> out;
    size_t all = 0;
    while (all < k_cold_bytes) {
      out.push_back(ops_->pack({type, bytes.data(), n, k}));
      all += out.back()->bytes();
    }
    return out;
  }
  /// Tensor cores are faster on zeros.
  Ops::Buffer random_rows(size_t count) {
    std::vector<float> numbers(count);
    Random random(count);
    for (float& x : numbers) x = static_cast<float>(random.next_u32() >> 8) * 0x1p-23f - 1.0f;
    Ops::Buffer out = ops_->allocate(count * sizeof(float));
    ops_->upload(std::as_bytes(std::span(numbers)), out.get());
    return out;
  }
  float* floats(const Ops::Buffer& buffer) { return reinterpret_cast<float*>(buffer.get()); }

  static std::string product_words(WeightType type, size_t n, size_t k) {
    return std::string(weight_type_info(type)->name) + " " + std::to_string(n) + " x " +
           std::to_string(k);
  }

  double copy_bandwidth() {
    const KvGeometry geometry = {
        .layers = 1, .kv_heads = 64, .head_dim = 128, .block_tokens = 16 * 1024};
    const Ops::Buffer pool = ops_->allocate(2 * geometry.block_bytes());
    const double taken = seconds([&](size_t) { ops_->copy_block(geometry, 0, 1, pool.get()); });
    return 2.0 * static_cast<double>(geometry.block_bytes()) / taken;
  }

  void decode() {
    std::printf("\n| weights | shape | rows | us | GB/s | share of memory | to 1 row |\n");
    std::printf("|---|---|---|---|---|---|---|\n");
    const struct {
      size_t n, k;
    } shapes[] = {{k_hidden, k_hidden}, {k_ffn, k_hidden}, {k_hidden, k_ffn}};
    for (const WeightType type : {WeightType::q4_0, WeightType::q4_k, WeightType::q6_k,
                                  WeightType::q8_0, WeightType::bf16}) {
      for (const auto& [n, k] : shapes) {
        const std::string shape = product_words(type, n, k);
        if (!wanted(shape)) continue;
        const auto all = matrices(type, n, k);
        double of_one = 0;
        for (const size_t m : {1, 4, 8, 16, 32, 64}) {
          if (!wanted(shape + " " + std::to_string(m))) continue;
          const Ops::Buffer x = random_rows(m * k), y = ops_->allocate(m * n * 4);
          const double taken = seconds([&](size_t turn) {
            const Product product = {.w = all[turn % all.size()].get(), .y = floats(y)};
            ops_->matmul({floats(x)}, m, {&product, 1});
          });
          if (m == 1) of_one = taken;
          const double speed = static_cast<double>(all[0]->bytes()) / taken;
          std::printf("| %s | %zu x %zu | %zu | %.1f | %.0f | %.0f %% | %.2f |\n",
                      weight_type_info(type)->name.data(), n, k, m, taken * 1e6, speed * 1e-9,
                      100 * speed / bandwidth_, of_one > 0 ? taken / of_one : 0);
        }
      }
    }
  }

  /// One layer of 32 heads, 8 of keys and values.
  void attention() {
    std::printf("\n| KV | streams | rows | depth | us | GB/s | share of memory | TFLOP/s |\n");
    std::printf("|---|---|---|---|---|---|---|---|\n");
    for (const KvKind kind : {KvKind::fp16, KvKind::fp8, KvKind::q8_0, KvKind::q4_0}) {
      for (const uint32_t streams : {1u, 8u, 64u, 256u}) attend(kind, streams, 1, 4095);
      attend(kind, 1, 8, 4088);
      attend(kind, 1, 2048, 0);
    }
  }
  void attend(KvKind kind, uint32_t streams, uint32_t rows, uint32_t first) {
    constexpr size_t k_heads = 32;
    if (!wanted("attention " + std::string(kv_kind_name(kind)) + " " + std::to_string(streams) +
                " " + std::to_string(rows))) {
      return;
    }
    KvGeometry geometry = {
        .layers = 1, .kv_heads = 8, .head_dim = 128, .block_tokens = 16, .k_kind = kind};
    geometry.v_kind = kind;
    const uint32_t blocks = (first + rows + 15) / 16;
    const Ops::Buffer pool = ops_->allocate(size_t{streams} * blocks * geometry.block_bytes());
    std::vector<std::vector<int32_t>> tables;
    std::vector<Segment> segments;
    for (uint32_t s = 0; s < streams; ++s) {
      auto& table = tables.emplace_back();
      for (uint32_t i = 0; i < blocks; ++i) table.push_back(static_cast<int32_t>(i * streams + s));
      segments.push_back({table.data(), s * rows, rows, first});
    }
    const size_t numbers = size_t{streams} * rows * k_heads * 128;
    const Ops::Buffer q = random_rows(numbers), out = ops_->allocate(numbers * 4);
    const double taken = seconds([&](size_t) {
      ops_->attention(geometry, 0, segments, floats(q), k_heads, 0.088f, pool.get(), floats(out));
    });
    const double bytes = static_cast<double>(streams) * (first + rows) / 16 *
                         static_cast<double>(geometry.block_bytes());
    const double pairs = static_cast<double>(streams) * rows * (first + (rows + 1) / 2.0);
    std::printf("| %s | %u | %u | %u | %.1f | %.0f | %.0f %% | %.1f |\n", kv_kind_name(kind).data(),
                streams, rows, first, taken * 1e6, bytes / taken * 1e-9,
                100 * bytes / taken / bandwidth_, 4.0 * pairs * k_heads * 128 / taken * 1e-12);
  }

  void prefill() {
    const double peak = only_.empty() ? cublas_flops(2048, k_ffn, k_hidden) : 0;
    if (peak > 0) {
      std::printf("\ncuBLAS, bf16, 2048 x %u x %u: %.0f TFLOP/s\n", k_ffn, k_hidden, peak * 1e-12);
    } else {
      std::printf("\nno cuBLAS on this machine: no share of its speed\n");
    }
    std::printf("\n| weights | shape | rows | us | TFLOP/s | share of cuBLAS |\n");
    std::printf("|---|---|---|---|---|---|\n");
    for (const WeightType type : {WeightType::q4_0, WeightType::q4_k, WeightType::q6_k,
                                  WeightType::q8_0, WeightType::bf16, WeightType::f16}) {
      const std::string shape = product_words(type, k_ffn, k_hidden);
      if (!wanted(shape)) continue;
      const auto all = matrices(type, k_ffn, k_hidden);
      for (const size_t m : {128, 512, 2048}) {
        if (!wanted(shape + " " + std::to_string(m))) continue;
        const Ops::Buffer x = random_rows(m * k_hidden), y = ops_->allocate(m * k_ffn * 4);
        const double taken = seconds([&](size_t turn) {
          const Product product = {.w = all[turn % all.size()].get(), .y = floats(y)};
          ops_->matmul({floats(x)}, m, {&product, 1});
        });
        const double flops = 2.0 * static_cast<double>(m) * k_ffn * k_hidden / taken;
        std::printf("| %s | %u x %u | %zu | %.1f | %.1f | %s |\n",
                    weight_type_info(type)->name.data(), k_ffn, k_hidden, m, taken * 1e6,
                    flops * 1e-12,
                    peak > 0 ? std::to_string(static_cast<int>(100 * flops / peak)).c_str() : "-");
      }
    }
  }

  double cublas_flops(int m, int n, int k);

  SteadyClock clock_;
  std::unique_ptr<Ops> ops_;
  std::string only_;
  Ops::Buffer probe_;
  double bandwidth_ = 0;
};

/// Products of bf16 by the machine's own cuBLAS; 0 without one.
double Bench::cublas_flops(int m, int n, int k) {
  constexpr int k_bf16 = 14, k_compute_f32 = 68, k_any = -1;  // cuBLAS's own numbers
  using Create = int (*)(void**);
  using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int,
                       const void*, int, int, const void*, void*, int, int, int, int);
  using GetVector = int (*)(int, int, const void*, int, void*, int);
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
    if (library == nullptr) library = ::dlopen(name, RTLD_NOW);
  }
  if (library == nullptr) return 0;
  const auto create = reinterpret_cast<Create>(::dlsym(library, "cublasCreate_v2"));
  const auto gemm = reinterpret_cast<Gemm>(::dlsym(library, "cublasGemmEx"));
  const auto get = reinterpret_cast<GetVector>(::dlsym(library, "cublasGetVector"));
  void* handle = nullptr;
  if (create == nullptr || gemm == nullptr || get == nullptr || create(&handle) != 0) return 0;
  const size_t sizes[] = {size_t(m) * size_t(k), size_t(k) * size_t(n), size_t(m) * size_t(n)};
  std::vector<Ops::Buffer> buffers;
  Random random(1);
  for (const size_t size : sizes) {
    std::vector<uint16_t> numbers(size);
    for (uint16_t& x : numbers) x = static_cast<uint16_t>((random.next_u32() & 0x80FF) | 0x3F00);
    buffers.push_back(ops_->allocate(2 * size));
    ops_->upload(std::as_bytes(std::span(numbers)), buffers.back().get());
  }
  const float one = 1, zero = 0;
  bool went_well = true;
  const auto multiply = [&](size_t) {
    went_well &= gemm(handle, 0, 0, m, n, k, &one, buffers[0].get(), k_bf16, m, buffers[1].get(),
                      k_bf16, k, &zero, buffers[2].get(), k_bf16, m, k_compute_f32, k_any) == 0;
  };
  const double taken = seconds(multiply, [&] {  // on cuBLAS's own stream
    uint16_t number = 0;
    went_well &= get(1, 2, buffers[2].get(), 1, &number, 1) == 0;
  });
  return went_well ? 2.0 * m * n * k / taken : 0;
}

}  // namespace
}  // namespace outrider::kernels

int main(int argc, char** argv) {
  const auto index = static_cast<uint32_t>(argc > 1 ? std::atoi(argv[1]) : 0);
  auto ops =
      outrider::kernels::open_cuda_ops(index, std::max(1u, std::thread::hardware_concurrency()));
  if (!ops) {
    std::fprintf(stderr, "gpu_bench: %s\n", ops.error().message.c_str());
    return 2;
  }
  outrider::kernels::Bench(std::move(ops).value(), argc > 2 ? argv[2] : "").run();
  return 0;
}
