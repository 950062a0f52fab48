#include "tools/engine_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "base/cpu_count.hpp"

namespace outrider::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ContextWarning, SaysBothFiguresWhenTheMemoryCutsTheContext) {
  Settings settings;
  ASSERT_TRUE(settings.set("kv-memory-mb", "1", "flag").ok());
  EXPECT_THAT(context_warning(settings, 720, 8192),
              AllOf(HasSubstr("kv-memory-mb 1"), HasSubstr("720"), HasSubstr("8192")));
  EXPECT_EQ(context_warning(settings, 8192, 8192), "");
  ASSERT_TRUE(settings.set("ctx", "720", "flag").ok());
  EXPECT_EQ(context_warning(settings, 720, 8192), "") << "it was asked for";
}

TEST(PoolText, SaysWhenThePoolIsSmallerThanTheMemory) {
  Settings settings;
  EXPECT_EQ(pool_text(settings, 4095, 8192), "KV pool: 4095 blocks of 16 tokens");
  ASSERT_TRUE(settings.set("kv-memory-mb", "16000000", "flag").ok());
  EXPECT_THAT(pool_text(settings, 65'536, 8192),
              AllOf(HasSubstr("65536 blocks"), HasSubstr("kv-memory-mb 16000000")));
}

TEST(EngineOptions, TakeTheKvKindsFromTheSettings) {
  Settings settings;
  EXPECT_FALSE(settings.set("kv-kind", "fp12", "flag"));
  ASSERT_TRUE(settings.set("kv-kind", "k=q8_0,v=q4_0", "flag"));
  const model::EngineOptions options = engine_options(settings);
  EXPECT_EQ(options.kv_kinds, (kernels::KvKinds{kernels::KvKind::q8_0, kernels::KvKind::q4_0}));
  ASSERT_TRUE(settings.set("kv-kind", "q4_0+hadamard", "flag"));
  EXPECT_TRUE(engine_options(settings).kv_kinds.k_hadamard);
  ASSERT_TRUE(settings.set("kv-kind", "auto", "flag"));
  EXPECT_EQ(engine_options(settings).kv_kinds, kernels::KvKinds{}) << "until a plan is made";
}

/// On a machine with fewer than eight GPUs, or none, or a build without CUDA.
TEST(EngineOptions, ADeviceThatIsNotThereIsNamed) {
  Settings settings;
  EXPECT_FALSE(settings.set("device", "cuda", "flag"));
  EXPECT_FALSE(settings.set("device", "cuda:8", "flag"));
  ASSERT_TRUE(settings.set("model", "tests/support/models/tiny-llama.gguf", "flag").ok());
  ASSERT_TRUE(settings.set("device", "cuda:7", "flag").ok());
  const auto checked = check_devices(settings);
  ASSERT_FALSE(checked.ok());
  const auto model = load_with_progress(settings);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(checked.error().message, model.error().message);
  EXPECT_EQ(model.error().code, ErrorCode::unsupported);
  EXPECT_EQ(model.error().field, "device");
  EXPECT_THAT(model.error().message, testing::StartsWith("device: cuda:7: this "));
}

TEST(EngineOptions, ADraftModelMayHaveADeviceOfItsOwn) {
  Settings settings;
  const std::string model = "tests/support/models/tiny-llama.gguf";
  const LoadWords silent = {.inform = [](const std::string&) {}, .warn = [](const std::string&) {}};
  for (const auto& [name, value] :
       {std::pair{"draft", model}, {"threads", "1"}, {"draft-threads", "1000"}}) {
    ASSERT_TRUE(settings.set(name, value, "flag")) << name;
  }
  EXPECT_TRUE(plan_draft_threads(settings).competes);
  ASSERT_TRUE(settings.set("device", "cuda:0", "flag"));
  EXPECT_EQ(draft_device(settings), "cuda:0");
  EXPECT_TRUE(plan_draft_threads(settings).competes) << "for one GPU";
  ASSERT_TRUE(settings.set("draft-device", "cuda:7", "flag"));
  EXPECT_FALSE(plan_draft_threads(settings).competes);
  const auto absent = load_draft_with_progress(settings, nullptr, silent);
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().field, "draft-device");
  EXPECT_THAT(absent.error().message, testing::StartsWith("draft-device: cuda:7: this "));
  ASSERT_TRUE(settings.set("device", "cpu", "flag"));
  const auto checked = check_devices(settings);
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().message, absent.error().message);
  ASSERT_TRUE(settings.set("draft-device", "cpu", "flag"));
  EXPECT_TRUE(check_devices(settings).ok());
  ASSERT_TRUE(settings.set("draft-threads", "1", "flag"));
  EXPECT_TRUE(load_draft_with_progress(settings, nullptr, silent)) << "the model's may be missing";
}

TEST(EngineOptions, HaveAWindowOnlyWhereItIsAskedFor) {
  Settings settings;
  EXPECT_EQ(engine_options(settings).local_window, 0u);
  ASSERT_TRUE(settings.set("local-window", "1000", "flag").ok());
  EXPECT_EQ(engine_options(settings).local_window, 1000u);
}

TEST(EngineOptions, TakeTheDecodePlanFromTheSettings) {
  Settings settings;
  ASSERT_TRUE(settings.set("decode-chunks", "16,32,64", "flag").ok());
  EXPECT_TRUE(engine_options(settings).decode_plan.bounds_nothing()) << "by default";
  ASSERT_TRUE(settings.set("decode-plan", "fixed", "flag").ok());
  EXPECT_THAT(engine_options(settings).decode_plan.rows, testing::ElementsAre(16, 32, 64));
  ASSERT_TRUE(settings.set("decode-plan", "auto", "flag").ok());
  EXPECT_TRUE(engine_options(settings).decode_plan.is_automatic);
}

TEST(ClusterSecret, IsRandomWhereNoFileIsNamed) {
  const Settings settings;
  const auto secret = cluster_secret(settings);
  ASSERT_TRUE(secret.ok());
  EXPECT_EQ(secret->size(), 32u);
  EXPECT_NE(*secret, *cluster_secret(settings));
}

TEST(ClusterSecret, IsWhatTheFileHoldsButForTheNewlineAtItsEnd) {
  const std::string path = testing::TempDir() + "outrider_cluster_secret";
  Settings settings;
  ASSERT_TRUE(settings.set("cluster-secret-file", path, "flag").ok());
  std::ofstream(path) << "0123456789 abcdef\n";
  const auto secret = cluster_secret(settings);
  ASSERT_TRUE(secret.ok());
  EXPECT_EQ(*secret, "0123456789 abcdef");
  for (const std::string& wrong : {std::string(), std::string("short\n"), std::string(5000, 'x')}) {
    std::ofstream(path) << wrong;
    const auto refused = cluster_secret(settings);
    ASSERT_FALSE(refused.ok()) << wrong.size();
    EXPECT_EQ(refused.error().field, "cluster-secret-file");
    const std::string has = wrong.size() > 4096 ? "more" : std::to_string(wrong.empty() ? 0 : 5);
    EXPECT_THAT(refused.error().message, testing::EndsWith(" bytes; " + path + " has " + has));
  }
  std::remove(path.c_str());
  EXPECT_FALSE(cluster_secret(settings).ok());
  ASSERT_TRUE(settings.set("cluster-secret-file", testing::TempDir(), "flag").ok());
  EXPECT_THAT(cluster_secret(settings).error().message, testing::HasSubstr("cannot read"));
}

TEST(EngineOptions, CachePrefixesUnlessTheyAreToldNotTo) {
  Settings settings;
  EXPECT_TRUE(engine_options(settings).prefix_caching);
  ASSERT_TRUE(settings.set("prefix-caching", "off", "flag").ok());
  EXPECT_FALSE(engine_options(settings).prefix_caching);
  EXPECT_FALSE(settings.set("prefix-caching", "true", "flag").ok());
}

TEST(ThreadPlan, SaysHowManyAndWhy) {
  const UsableCpus usable = usable_cpus();
  Settings settings;
  EXPECT_EQ(plan_threads(settings).threads, usable.threads);
  EXPECT_THAT(plan_threads(settings).text, AllOf(HasSubstr(usable.why), HasSubstr("pinning o")));
  ASSERT_TRUE(settings.set("threads", "1", "flag").ok());
  ASSERT_TRUE(settings.set("pin-threads", "on", "flag").ok());
  const ThreadPlan one = plan_threads(settings);
  EXPECT_EQ(one.threads, 1u);
  EXPECT_EQ(one.cpus, std::vector<uint32_t>{usable.order.cpus.front()});
  EXPECT_THAT(one.text, HasSubstr("threads: 1 as set"));
  EXPECT_EQ(one.warning, "");
  ASSERT_TRUE(settings.set("threads", "1024", "flag").ok());
  EXPECT_THAT(plan_threads(settings).warning,
              AllOf(HasSubstr("threads: 1024"), HasSubstr(std::to_string(usable.threads))));
}

}  // namespace
}  // namespace outrider::tools
