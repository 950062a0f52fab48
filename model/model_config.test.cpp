#include "model/model_config.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "model/gguf_image.test.hpp"

namespace outrider::model {
namespace {

using kernels::RopeParams;
using Write = std::function<void(GgufImage&)>;

template <class T>
Write value(GgufType type, T number) {
  return [type, number](GgufImage& image) {
    image.number(static_cast<uint32_t>(type)).number(number);
  };
}
Write u32(uint32_t number) {
  return value(GgufType::u32, number);
}
Write f32(float number) {
  return value(GgufType::f32, number);
}
Write text(std::string words) {
  return [words](GgufImage& image) {
    image.number(static_cast<uint32_t>(GgufType::string)).text(words);
  };
}
Write strings(uint64_t count) {
  return [count](GgufImage& image) {
    image.number(static_cast<uint32_t>(GgufType::array));
    image.number(static_cast<uint32_t>(GgufType::string)).number(count);
    for (uint64_t i = 0; i < count; ++i) image.text("t");
  };
}

using Metadata = std::map<std::string, Write>;

/// A small valid configuration: 10 tokens, 64 wide, 4 heads.
Metadata valid(const std::string& architecture = "llama") {
  const std::string p = architecture + ".";
  return {{"general.architecture", text(architecture)},
          {"general.name", text("Sample")},
          {p + "block_count", u32(2)},
          {p + "context_length", u32(128)},
          {p + "embedding_length", u32(64)},
          {p + "feed_forward_length", u32(96)},
          {p + "attention.head_count", u32(4)},
          {p + "attention.head_count_kv", u32(2)},
          {p + "attention.layer_norm_rms_epsilon", f32(1e-5f)},
          {p + "rope.freq_base", f32(500000.0f)},
          {"tokenizer.ggml.tokens", strings(10)}};
}

struct ExtraTensor {
  std::string name;
  std::vector<float> values;
};

Result<ModelConfig> read(const Metadata& metadata, const std::vector<ExtraTensor>& extras = {}) {
  GgufImage image;
  image.header(3, 1 + extras.size(), metadata.size());
  for (const auto& [key, write] : metadata) {
    image.text(key);
    write(image);
  }
  constexpr uint64_t k_embedding_bytes = 64 * 10 * 4;
  image.tensor("token_embd.weight", {64, 10}, 0, 0);
  uint64_t offset = k_embedding_bytes;
  for (const ExtraTensor& extra : extras) {
    image.tensor(extra.name, {extra.values.size()}, 0, offset);
    offset += (extra.values.size() * 4 + 31) / 32 * 32;
  }
  image.pad(32).zeros(k_embedding_bytes);
  for (const ExtraTensor& extra : extras) {
    for (const float number : extra.values) image.number(number);
    image.pad(32);
  }
  const auto file = GgufFile::parse(image.bytes(), "sample");
  if (!file) return file.error();
  return ModelConfig::from_gguf(*file);
}

TEST(ModelConfig, ReadsTheTinyLlama) {
  const auto file = GgufFile::open("tests/support/models/tiny-llama.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const auto config = ModelConfig::from_gguf(*file);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->name, "Tiny Llama");
  EXPECT_EQ(config->layers, 3u);
  EXPECT_EQ(config->hidden, 64u);
  EXPECT_EQ(config->ffn, 128u);
  EXPECT_EQ(config->heads, 4u);
  EXPECT_EQ(config->kv_heads, 2u);
  EXPECT_EQ(config->head_dim, 16u);
  EXPECT_EQ(config->vocab, 512u);
  EXPECT_EQ(config->context_length, 512u);
  EXPECT_EQ(config->rms_eps, 1e-5f);
  EXPECT_EQ(config->attention_scale, 0.25f);
  EXPECT_TRUE(config->tied_head);
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_EQ(config->rope.style, RopeParams::Style::adjacent);
  EXPECT_EQ(config->rope.rotary_dim, 16u);
}

TEST(ModelConfig, ReadsTheTinyQwen2WithHeadsNarrowerThanItsWidth) {
  const auto file = GgufFile::open("tests/support/models/tiny-qwen2.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const auto config = ModelConfig::from_gguf(*file);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->head_dim, 32u);
  EXPECT_EQ(config->q_dim(), 128u);
  EXPECT_EQ(config->kv_dim(), 64u);
  EXPECT_FALSE(config->tied_head);
  EXPECT_TRUE(config->qkv_bias);
  EXPECT_EQ(config->rope.style, RopeParams::Style::halves);
  EXPECT_EQ(config->rope.base, 1e6f);
}

TEST(ModelConfig, FillsInWhatFilesMayLeaveOut) {
  Metadata metadata = valid();
  metadata.erase("llama.attention.head_count_kv");
  metadata.erase("llama.rope.freq_base");
  metadata.erase("general.name");
  metadata.erase("tokenizer.ggml.tokens");
  const auto config = read(metadata);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->kv_heads, 4u);
  EXPECT_EQ(config->head_dim, 16u);
  EXPECT_EQ(config->rope.rotary_dim, 16u);
  EXPECT_EQ(config->rope.base, 10000.0f);
  EXPECT_EQ(config->rope.scale, 1.0f);
  EXPECT_EQ(config->rope.params().factors, nullptr);
  EXPECT_EQ(config->name, "");
}

TEST(ModelConfig, ReadsLinearRopeScalingInItsNewAndItsOldForm) {
  Metadata metadata = valid();
  metadata["llama.rope.scaling.type"] = text("linear");
  metadata["llama.rope.scaling.factor"] = f32(4.0f);
  EXPECT_EQ(read(metadata)->rope.scale, 0.25f);

  Metadata old = valid();
  old["llama.rope.scale_linear"] = f32(2.0f);
  EXPECT_EQ(read(old)->rope.scale, 0.5f);

  Metadata none = valid();
  none["llama.rope.scaling.type"] = text("none");
  none["llama.rope.scaling.factor"] = f32(4.0f);
  EXPECT_EQ(read(none)->rope.scale, 1.0f);
}

TEST(ModelConfig, ReadsLlama3FrequencyFactors) {
  const auto config = read(valid(), {{"rope_freqs.weight", {1, 1, 1, 1, 2, 4, 8, 8}}});
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->rope.factors.size(), 8u);
  EXPECT_EQ(config->rope.params().factors[7], 8.0f);
  EXPECT_FALSE(read(valid(), {{"rope_freqs.weight", {1, 1, 1, 1}}}));
  EXPECT_FALSE(read(valid(), {{"rope_freqs.weight", {1, 1, 1, 1, 2, 4, 8, 0}}}));
  EXPECT_FALSE(read(valid(), {{"rope_freqs.weight", {1, 1, 1, 1, 2, 4, 8, -8}}}));
  EXPECT_FALSE(read(valid(), {{"rope_freqs.weight", {1, 1, 1, 1, 2, 4, 8, NAN}}}));
}

TEST(ModelConfig, SeesBiasesThatALlamaFileBrings) {
  EXPECT_TRUE(read(valid(), {{"blk.0.attn_q.bias", {0, 0}}})->qkv_bias);
  EXPECT_FALSE(read(valid())->qkv_bias);
  EXPECT_TRUE(read(valid("qwen2"))->qkv_bias);
}

TEST(ModelConfig, RefusesOtherArchitecturesByName) {
  const auto config = read(valid("mamba"));
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::unsupported);
  EXPECT_EQ(config.error().message,
            "sample: architecture 'mamba' is not supported; supported are: llama, qwen2");
  Metadata nameless = valid();
  nameless.erase("general.architecture");
  EXPECT_EQ(read(nameless).error().code, ErrorCode::not_found);
}

struct Refusal {
  const char* name;
  const char* key;  ///< without the architecture
  Write write;
  ErrorCode code;
  const char* message;
};

void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.name;
}

class RefusedConfig : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedConfig, NamesTheKey) {
  const Refusal& refusal = GetParam();
  Metadata metadata = valid();
  const std::string key = "llama." + std::string(refusal.key);
  if (refusal.write) {
    metadata[key] = refusal.write;
  } else {
    metadata.erase(key);
  }
  const auto config = read(metadata);
  ASSERT_FALSE(config);
  EXPECT_EQ(to_string(config.error().code), to_string(refusal.code)) << config.error().message;
  EXPECT_EQ(config.error().field, key) << config.error().message;
  EXPECT_NE(config.error().message.find(key), std::string::npos) << config.error().message;
  EXPECT_NE(config.error().message.find(refusal.message), std::string::npos)
      << config.error().message;
}

constexpr auto k_corrupt_code = ErrorCode::corrupt;
constexpr auto k_unsupported_code = ErrorCode::unsupported;
constexpr auto k_absent = ErrorCode::not_found;

const Refusal k_refusals[] = {
    {"NoLayers", "block_count", u32(0), k_corrupt_code, "is 0, expected 1 to 1024"},
    {"TooManyLayers", "block_count", u32(100'000), k_corrupt_code, "expected 1 to 1024"},
    {"LayersAbsent", "block_count", nullptr, k_absent, "missing"},
    {"LayersAsText", "block_count", text("2"), k_corrupt_code, "expected an integer"},
    {"LayersNegative", "block_count", value(GgufType::i32, -2), k_corrupt_code, "negative"},
    {"LayersOver32Bits", "block_count", value(GgufType::u64, uint64_t{1} << 32 | 2), k_corrupt_code,
     "expected 1 to 1024"},
    {"NoWidth", "embedding_length", u32(0), k_corrupt_code, "is 0"},
    {"HugeWidth", "embedding_length", u32(~0u), k_corrupt_code, "is 4294967295"},
    {"NoFeedForward", "feed_forward_length", u32(0), k_corrupt_code, "is 0"},
    {"FeedForwardAbsent", "feed_forward_length", nullptr, k_absent, "missing"},
    {"NoContext", "context_length", u32(0), k_corrupt_code, "is 0"},
    {"HugeContext", "context_length", u32(1u << 30), k_corrupt_code, "is 1073741824"},
    {"NoHeads", "attention.head_count", u32(0), k_corrupt_code, "is 0"},
    {"HeadsPerLayer", "attention.head_count", strings(2), k_corrupt_code, "expected an integer"},
    {"HeadsThatDoNotDivide", "attention.head_count", u32(6), k_corrupt_code, "does not divide"},
    {"NoKvHeads", "attention.head_count_kv", u32(0), k_corrupt_code, "is 0"},
    {"KvHeadsThatDoNotDivide", "attention.head_count_kv", u32(3), k_corrupt_code,
     "does not divide"},
    {"MoreKvHeadsThanHeads", "attention.head_count_kv", u32(8), k_corrupt_code, "does not divide"},
    {"OddHeads", "attention.key_length", u32(15), k_corrupt_code, "odd"},
    {"HugeHeads", "attention.key_length", u32(4096), k_corrupt_code, "expected 2 to 1024"},
    {"OtherValueLength", "attention.value_length", u32(32), k_unsupported_code,
     "both must be equal"},
    {"NoEpsilon", "attention.layer_norm_rms_epsilon", nullptr, k_absent, "missing"},
    {"EpsilonZero", "attention.layer_norm_rms_epsilon", f32(0), k_corrupt_code, "above 0"},
    {"EpsilonNegative", "attention.layer_norm_rms_epsilon", f32(-1e-5f), k_corrupt_code, "above 0"},
    {"EpsilonNan", "attention.layer_norm_rms_epsilon", f32(NAN), k_corrupt_code, "above 0"},
    {"EpsilonHuge", "attention.layer_norm_rms_epsilon", f32(2), k_corrupt_code, "above 0"},
    {"BaseZero", "rope.freq_base", f32(0), k_corrupt_code, "above 0"},
    {"BaseDenormal", "rope.freq_base", f32(1e-44f), k_corrupt_code, "expected a normal number"},
    {"BaseInfinite", "rope.freq_base", f32(INFINITY), k_corrupt_code, "above 0"},
    {"BaseAsInteger", "rope.freq_base", u32(10000), k_corrupt_code, "expected a float"},
    {"RotationOverTheHead", "rope.dimension_count", u32(18), k_corrupt_code, "expected 2 to 16"},
    {"OddRotation", "rope.dimension_count", u32(7), k_corrupt_code, "odd"},
    {"Yarn", "rope.scaling.type", text("yarn"), k_unsupported_code, "'yarn'"},
    {"LongRope", "rope.scaling.type", text("longrope"), k_unsupported_code, "'longrope'"},
    {"ScalingWithoutType", "rope.scaling.factor", f32(0), k_corrupt_code, "above 0"},
    {"Experts", "expert_count", u32(8), k_unsupported_code, "mixture-of-experts"},
    {"SlidingWindow", "attention.sliding_window", u32(4096), k_unsupported_code, "sliding-window"},
    {"LogitScale", "logit_scale", f32(0.5f), k_unsupported_code, "scaled logits"},
    {"EmbeddingScale", "embedding_scale", f32(12), k_unsupported_code, "scaled embeddings"},
    {"SoftCap", "final_logit_softcapping", f32(30), k_unsupported_code, "soft caps"},
    {"NotCausal", "attention.causal", value(GgufType::boolean, uint8_t{0}), k_unsupported_code,
     "causal"},
    {"VocabularySize", "vocab_size", u32(11), k_corrupt_code, "is 11, expected 10 to 10"},
};

INSTANTIATE_TEST_SUITE_P(All, RefusedConfig, testing::ValuesIn(k_refusals),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(ModelConfig, RefusesATokenListOfAnotherLength) {
  Metadata metadata = valid();
  metadata["tokenizer.ggml.tokens"] = strings(9);
  const auto config = read(metadata);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message,
            "sample: metadata 'tokenizer.ggml.tokens' has 9 entries, 'token_embd.weight' has 10 "
            "rows");
}

}  // namespace
}  // namespace outrider::model
