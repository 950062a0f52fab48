#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden/golden_run.hpp"

/// The engine against the reference on the tiny models, which need no download and hold every
/// weight encoding between them. Limits are what float32 rounding explains, several times over.
namespace outrider::golden {
namespace {

using testing::IsEmpty;

struct Case {
  std::string model;
  std::shared_ptr<kernels::Ops> ops;
  kernels::KvKinds kv_kinds = {kernels::KvKind::fp32, kernels::KvKind::fp32};
  uint32_t batch_tokens = 64;
};

std::shared_ptr<kernels::Ops> cpu_ops() {
  return kernels::make_cpu_ops(1, kernels::default_isa());
}

Result<Report> run(const Case& c) {
  const auto file = read_golden("tests/golden/" + c.model + ".json");
  if (!file) {
    return file.error();
  }
  const auto loaded = model::load_model("tests/support/models/" + c.model + ".gguf", c.ops);
  if (!loaded) {
    return loaded.error();
  }
  model::EngineOptions options;
  options.batch_tokens = c.batch_tokens;
  options.kv_memory_bytes = uint64_t{16} << 20;
  options.kv_kinds = c.kv_kinds;
  const auto generator = model::Generator::create(*loaded, options);
  if (!generator) {
    return generator.error();
  }
  return run_golden(**generator, *file);
}

void expect_within(const Case& c, const Limits& limits) {
  const auto report = run(c);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_THAT(violations(*report, limits), IsEmpty()) << c.model << ": " << summary(*report);
}

/// Seen: mean NLL 5e-8, every choice, top tokens 6e-6.
constexpr Limits k_fp32{1e-6, 0.995, 1e-3f, 5e-5};
/// Activations rounded to 16 bits of their row's range. Seen: mean NLL 7e-7, top-1 all, top tokens
/// 4e-4.
constexpr Limits k_int16_rows{1e-5, 0.995, 0.005f, 1e-3};
/// Keys and values rounded to 11 bits. Seen: mean NLL 2e-5, top-1 99.75 %, top tokens 2e-3.
constexpr Limits k_fp16_kv{2e-4, 0.99, 0.02f, 0.01};

TEST(TinyGolden, TheReferenceKernelsEqualTransformersToFloatAccuracy) {
  for (const std::string model : {"tiny-llama", "tiny-qwen2"}) {
    expect_within({model, kernels::make_ref_ops()}, k_fp32);
  }
}

TEST(TinyGolden, TheCpuKernelsEqualTransformersToTheRoundingOfActivations) {
  for (const std::string model : {"tiny-llama", "tiny-qwen2"}) {
    expect_within({model, cpu_ops()}, k_int16_rows);
    expect_within({.model = model, .ops = cpu_ops(), .batch_tokens = 7}, k_int16_rows);
  }
}

TEST(TinyGolden, HalfPrecisionKeysAndValuesStayClose) {
  for (const std::string model : {"tiny-llama", "tiny-qwen2"}) {
    expect_within({model, cpu_ops(), {}}, k_fp16_kv);
  }
}

TEST(TinyGolden, TurnedKeysMeetTurnedQueries) {
  for (const std::string model : {"tiny-llama", "tiny-qwen2"}) {
    expect_within({model, cpu_ops(), {kernels::KvKind::fp32, kernels::KvKind::fp32, true}},
                  k_int16_rows);
  }
}

}  // namespace
}  // namespace outrider::golden
