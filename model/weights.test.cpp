#include "model/weights.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace outrider::model {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Bytes tiny_llama() {
  return bytes_of("tests/support/models/tiny-llama.gguf");
}
Bytes tiny_qwen2() {
  return bytes_of("tests/support/models/tiny-qwen2.gguf");
}

/// Where `text` begins in `bytes`; names occur once.
size_t position_of(const Bytes& bytes, std::string_view text) {
  const auto needle = std::as_bytes(std::span(text));
  const auto found = std::search(bytes.begin(), bytes.end(), needle.begin(), needle.end());
  EXPECT_NE(found, bytes.end()) << text;
  return static_cast<size_t>(found - bytes.begin());
}

void rename(Bytes& bytes, std::string_view from, std::string_view to) {
  ASSERT_EQ(from.size(), to.size());
  const size_t at = position_of(bytes, from);
  std::copy_n(std::as_bytes(std::span(to)).begin(), to.size(),
              bytes.begin() + static_cast<long>(at));
}

/// A configuration is read from the unchanged file, so that only the loader can object.
Result<Weights> load(const Bytes& bytes, const ModelConfig* config = nullptr) {
  const auto file = GgufFile::parse(bytes, "tiny");
  if (!file) return file.error();
  const auto own = ModelConfig::from_gguf(*file);
  if (config == nullptr && !own) return own.error();
  const auto ops = kernels::make_ref_ops();
  return load_weights(*file, config != nullptr ? *config : *own, *ops);
}

ModelConfig config_of(const Bytes& bytes) {
  const auto file = GgufFile::parse(bytes, "tiny");
  return *ModelConfig::from_gguf(*file);
}

TEST(Weights, LoadsATiedModel) {
  const auto weights = load(tiny_llama());
  ASSERT_TRUE(weights) << weights.error().message;
  ASSERT_EQ(weights->layers.size(), 3u);
  EXPECT_EQ(weights->output, nullptr);
  EXPECT_EQ(&weights->head(), weights->token_embd.get());
  EXPECT_EQ(weights->token_embd->rows(), 512u);
  EXPECT_EQ(weights->token_embd->cols(), 64u);
  const LayerWeights& layer = weights->layers[2];
  EXPECT_EQ(layer.attn_k->rows(), 32u);
  EXPECT_EQ(layer.ffn_down->cols(), 128u);
  EXPECT_EQ(layer.attn_norm.size(), 64u);
  EXPECT_EQ(layer.q_bias.data(), nullptr);
}

TEST(Weights, LoadsASeparateHeadAndBiases) {
  const auto weights = load(tiny_qwen2());
  ASSERT_TRUE(weights) << weights.error().message;
  ASSERT_NE(weights->output, nullptr);
  EXPECT_EQ(&weights->head(), weights->output.get());
  const LayerWeights& layer = weights->layers[1];
  EXPECT_EQ(layer.attn_q->rows(), 128u);
  EXPECT_EQ(layer.attn_output->cols(), 128u);
  EXPECT_EQ(layer.q_bias.size(), 128u);
  EXPECT_EQ(layer.v_bias.size(), 64u);
  EXPECT_NE(layer.k_bias.data(), nullptr);
}

TEST(Weights, ReportsProgressUpToTheWhole) {
  const auto bytes = tiny_llama();
  const auto file = GgufFile::parse(bytes);
  const auto config = ModelConfig::from_gguf(*file);
  const auto ops = kernels::make_ref_ops();
  uint64_t last = 0;
  uint64_t total = 0;
  const auto weights =
      load_weights(*file, *config, *ops, {.progress = [&](uint64_t done, uint64_t all) {
        EXPECT_GT(done, last);
        last = done;
        total = all;
        return true;
      }});
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, weights->file_bytes);
  EXPECT_EQ(total, 105'728u);
}

TEST(Weights, DigestIsThatOfTheNetworkAndNothingElse) {
  const auto bytes = tiny_llama();
  const Digest256 digest = load(bytes)->digest;
  EXPECT_EQ(load(bytes)->digest, digest);

  auto renamed_model = bytes;
  rename(renamed_model, "Tiny Llama", "Tidy Llama");
  EXPECT_EQ(load(renamed_model)->digest, digest);

  auto changed_weight = bytes;
  changed_weight.back() ^= std::byte{1};
  EXPECT_NE(load(changed_weight)->digest, digest);

  ModelConfig other_base = config_of(bytes);
  other_base.rope.base = 20000.0f;
  EXPECT_NE(load(bytes, &other_base)->digest, digest);
  ModelConfig other_eps = config_of(bytes);
  other_eps.rms_eps = 1e-6f;
  EXPECT_NE(load(bytes, &other_eps)->digest, digest);
  ModelConfig with_factors = config_of(bytes);
  with_factors.rope.factors.assign(8, 1.0f);
  EXPECT_NE(load(bytes, &with_factors)->digest, digest);
}

TEST(Weights, DigestDoesNotDependOnWhoComputesIt) {
  const auto bytes = tiny_llama();
  const auto file = GgufFile::parse(bytes);
  const ModelConfig config = config_of(bytes);
  for (const uint32_t threads : {1u, 3u}) {
    const auto ops = kernels::make_cpu_ops(threads, kernels::default_isa());
    EXPECT_EQ(load_weights(*file, config, *ops)->digest, load(bytes)->digest) << threads;
  }
}

TEST(Weights, RefusesAMissingTensorByName) {
  for (const std::string_view name :
       {"blk.1.attn_q.weight", "blk.2.ffn_norm.weight", "output_norm.weight"}) {
    auto bytes = tiny_llama();
    std::string other(name);
    other.front() = 'X';
    rename(bytes, name, other);
    const auto weights = load(bytes);
    ASSERT_FALSE(weights) << name;
    EXPECT_EQ(weights.error().code, ErrorCode::not_found);
    EXPECT_EQ(weights.error().message, "tiny: tensor '" + std::string(name) + "' is missing");
  }
}

TEST(Weights, RefusesAMissingBias) {
  auto bytes = tiny_qwen2();
  rename(bytes, "blk.1.attn_k.bias", "blk.1.attn_k.bios");
  EXPECT_EQ(load(bytes).error().message, "tiny: tensor 'blk.1.attn_k.bias' is missing");
}

TEST(Weights, RefusesAWrongShapeWithBothShapes) {
  const auto bytes = tiny_llama();
  ModelConfig config = config_of(bytes);
  config.ffn = 96;
  EXPECT_EQ(load(bytes, &config).error().message,
            "tiny: tensor 'blk.0.ffn_gate.weight' is 128 x 64, expected 96 x 64");
  config = config_of(bytes);
  config.kv_heads = 4;
  EXPECT_EQ(load(bytes, &config).error().message,
            "tiny: tensor 'blk.0.attn_k.weight' is 32 x 64, expected 64 x 64");
  config = config_of(bytes);
  config.vocab = 511;
  EXPECT_EQ(load(bytes, &config).error().message,
            "tiny: tensor 'token_embd.weight' is 512 x 64, expected 511 x 64");
}

TEST(Weights, RefusesTensorsThatTheNetworkDoesNotUse) {
  const auto bytes = tiny_llama();
  ModelConfig config = config_of(bytes);
  config.layers = 2;
  const auto weights = load(bytes, &config);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, ErrorCode::unsupported);
  EXPECT_NE(weights.error().message.find("'blk.2."), std::string::npos) << weights.error().message;

  const auto biased = tiny_qwen2();
  config = config_of(biased);
  config.qkv_bias = false;
  EXPECT_EQ(load(biased, &config).error().code, ErrorCode::unsupported);
}

TEST(Weights, LoadingStopsWhenProgressSaysSo) {
  const auto image = tiny_llama();
  const auto file = GgufFile::parse(image, "tiny");
  ASSERT_TRUE(file.ok());
  const auto config = ModelConfig::from_gguf(*file);
  ASSERT_TRUE(config.ok());
  uint32_t calls = 0;
  const auto weights = load_weights(*file, *config, *kernels::make_ref_ops(),
                                    {.progress = [&](uint64_t, uint64_t) { return ++calls < 2; }});
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(weights.error().code, ErrorCode::cancelled);
  EXPECT_EQ(calls, 2u);
}

}  // namespace
}  // namespace outrider::model
