#include "model/model_config.hpp"

#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "base/limits.hpp"

namespace outrider::model {
namespace {

/// The shortest text that reads back as the number.
std::string number_text(double value) {
  char text[32];
  return {text, std::to_chars(text, std::end(text), value).ptr};
}

struct Architecture {
  std::string_view name;
  kernels::RopeParams::Style rope_style;
  bool qkv_bias_required;
};

// llama files hold Q and K permuted for rotation of adjacent pairs.
constexpr Architecture k_architectures[] = {
    {"llama", kernels::RopeParams::Style::adjacent, false},
    {"qwen2", kernels::RopeParams::Style::halves, true},
};

/// Keys whose presence (with a value other than zero) means arithmetic that is not done here.
struct RefusedKey {
  std::string_view key;
  std::string_view reason;
};
constexpr RefusedKey k_refused_integers[] = {
    {"expert_count", "mixture-of-experts models"},
    {"expert_used_count", "mixture-of-experts models"},
    {"attention.sliding_window", "sliding-window attention"},
};
constexpr RefusedKey k_refused_floats[] = {
    {"logit_scale", "scaled logits"},
    {"embedding_scale", "scaled embeddings"},
    {"residual_scale", "scaled residuals"},
    {"attention.scale", "an attention scale of its own"},
    {"attention.clamp_kqv", "clamped attention inputs"},
    {"attn_logit_softcapping", "attention soft caps"},
    {"final_logit_softcapping", "logit soft caps"},
};

struct Range {
  uint64_t low;
  uint64_t high;
};

/// Reads keys under the architecture's prefix, checking each against its range.
class Reader {
 public:
  Reader(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  std::string key(std::string_view suffix) const { return prefix_ + std::string(suffix); }

  Error bad(std::string_view suffix, const std::string& what,
            ErrorCode code = ErrorCode::corrupt) const {
    return fail(code, file_.name() + ": metadata '" + key(suffix) + "' " + what, key(suffix));
  }

  Result<uint32_t> required(std::string_view suffix, Range range) const {
    const auto value = file_.get_u64(key(suffix));
    if (!value) return value.error();
    return checked(suffix, *value, range);
  }

  Result<uint32_t> optional(std::string_view suffix, Range range, uint64_t fallback) const {
    const auto value = file_.find_u64(key(suffix));
    if (!value) return value.error();
    return checked(suffix, value->value_or(fallback), range);
  }

  /// In (0, high], and large enough to have an inverse.
  Result<float> positive(std::string_view suffix, double value, double high) const {
    if (!(value >= std::numeric_limits<float>::min()) || !(value <= high)) {
      return bad(suffix, "is " + number_text(value) +
                             ", expected a normal number above 0, at most " + number_text(high));
    }
    return static_cast<float>(value);
  }

 private:
  Result<uint32_t> checked(std::string_view suffix, uint64_t value, Range range) const {
    if (value < range.low || value > range.high) {
      return bad(suffix, "is " + std::to_string(value) + ", expected " + std::to_string(range.low) +
                             " to " + std::to_string(range.high));
    }
    return static_cast<uint32_t>(value);
  }

  const GgufFile& file_;
  std::string prefix_;
};

Result<const Architecture*> find_architecture(const GgufFile& file) {
  const auto name = file.get_string("general.architecture");
  if (!name) return name.error();
  std::string supported;
  for (const Architecture& architecture : k_architectures) {
    if (architecture.name == *name) return &architecture;
    supported += (supported.empty() ? "" : ", ") + std::string(architecture.name);
  }
  return fail(ErrorCode::unsupported,
              file.name() + ": architecture '" + std::string(name->substr(0, 64)) +
                  "' is not supported; supported are: " + supported,
              "general.architecture");
}

Result<void> refuse_unsupported(const GgufFile& file, const Reader& reader) {
  for (const RefusedKey& refused : k_refused_integers) {
    const auto value = file.find_u64(reader.key(refused.key));
    if (!value) return value.error();
    if (value->value_or(0) != 0) {
      return reader.bad(refused.key,
                        "is " + std::to_string(**value) + ": " + std::string(refused.reason) +
                            " are not supported",
                        ErrorCode::unsupported);
    }
  }
  for (const RefusedKey& refused : k_refused_floats) {
    const auto value = file.find_float(reader.key(refused.key));
    if (!value) return value.error();
    if (value->value_or(0.0) != 0.0) {
      return reader.bad(refused.key,
                        "is " + std::to_string(**value) + ": " + std::string(refused.reason) +
                            " are not supported",
                        ErrorCode::unsupported);
    }
  }
  const auto causal = file.find_bool(reader.key("attention.causal"));
  if (!causal) return causal.error();
  if (!causal->value_or(true)) {
    return reader.bad("attention.causal", "is false: only causal models are supported",
                      ErrorCode::unsupported);
  }
  return {};
}

Result<void> read_sizes(const GgufFile& file, const Reader& reader, ModelConfig& config) {
  constexpr Range k_width{1, limits::model_width_max};
  constexpr Range k_heads{1, limits::model_heads_max};
  constexpr Range k_head_dim{2, limits::model_head_dim_max};
  OUTRIDER_ASSIGN(config.layers, reader.required("block_count", {1, limits::model_layers_max}));
  OUTRIDER_ASSIGN(config.hidden, reader.required("embedding_length", k_width));
  OUTRIDER_ASSIGN(config.ffn, reader.required("feed_forward_length", k_width));
  OUTRIDER_ASSIGN(config.context_length,
                  reader.required("context_length", {1, limits::model_context_tokens_max}));
  OUTRIDER_ASSIGN(config.heads, reader.required("attention.head_count", k_heads));
  OUTRIDER_ASSIGN(config.kv_heads,
                  reader.optional("attention.head_count_kv", k_heads, config.heads));
  if (config.heads % config.kv_heads != 0) {
    return reader.bad("attention.head_count_kv", "is " + std::to_string(config.kv_heads) +
                                                     ", which does not divide the " +
                                                     std::to_string(config.heads) + " heads");
  }
  const bool has_key_length = file.find_value(reader.key("attention.key_length")) != nullptr;
  if (!has_key_length && config.hidden % config.heads != 0) {
    return reader.bad("attention.head_count", "is " + std::to_string(config.heads) +
                                                  ", which does not divide the width " +
                                                  std::to_string(config.hidden));
  }
  OUTRIDER_ASSIGN(config.head_dim, reader.optional("attention.key_length", k_head_dim,
                                                   config.hidden / config.heads));
  if (config.head_dim % 2 != 0) {
    return reader.bad("attention.key_length", "is odd: " + std::to_string(config.head_dim));
  }
  uint32_t value_length = 0;
  OUTRIDER_ASSIGN(value_length,
                  reader.optional("attention.value_length", k_head_dim, config.head_dim));
  if (value_length != config.head_dim) {
    return reader.bad("attention.value_length",
                      "is " + std::to_string(value_length) + ", keys have " +
                          std::to_string(config.head_dim) + ": both must be equal",
                      ErrorCode::unsupported);
  }
  double eps = 0.0;
  OUTRIDER_ASSIGN(eps, file.get_float(reader.key("attention.layer_norm_rms_epsilon")));
  OUTRIDER_ASSIGN(config.rms_eps, reader.positive("attention.layer_norm_rms_epsilon", eps, 1.0));
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  return {};
}

Result<void> read_rope_scaling(const GgufFile& file, const Reader& reader, RopeConfig& rope) {
  std::optional<std::string_view> type;
  OUTRIDER_ASSIGN(type, file.find_string(reader.key("rope.scaling.type")));
  std::optional<double> factor;
  OUTRIDER_ASSIGN(factor, file.find_float(reader.key("rope.scaling.factor")));
  // Files from before rope.scaling.* exist have one number, which means linear scaling.
  const bool is_old = !type && !factor;
  const std::string_view factor_key = is_old ? "rope.scale_linear" : "rope.scaling.factor";
  if (is_old) OUTRIDER_ASSIGN(factor, file.find_float(reader.key(factor_key)));

  const std::string_view kind = type.value_or(factor ? "linear" : "none");
  if (kind != "none" && kind != "linear") {
    return reader.bad("rope.scaling.type",
                      "is '" + std::string(kind.substr(0, 64)) +
                          "', supported are: none, linear (and llama-3 factors as a tensor)",
                      ErrorCode::unsupported);
  }
  if (kind == "none") return {};
  float checked = 1.0f;
  OUTRIDER_ASSIGN(checked, reader.positive(factor_key, factor.value_or(0.0), 1e6));
  rope.scale = 1.0f / checked;
  return {};
}

Result<void> read_rope(const GgufFile& file, const Reader& reader, const Architecture& architecture,
                       ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.style = architecture.rope_style;
  OUTRIDER_ASSIGN(rope.rotary_dim,
                  reader.optional("rope.dimension_count", {2, config.head_dim}, config.head_dim));
  if (rope.rotary_dim % 2 != 0) {
    return reader.bad("rope.dimension_count", "is odd: " + std::to_string(rope.rotary_dim));
  }
  std::optional<double> base;
  OUTRIDER_ASSIGN(base, file.find_float(reader.key("rope.freq_base")));
  OUTRIDER_ASSIGN(rope.base, reader.positive("rope.freq_base", base.value_or(10000.0), 1e12));
  OUTRIDER_TRY(read_rope_scaling(file, reader, rope));
  constexpr std::string_view k_factors = "rope_freqs.weight";
  if (file.find_tensor(k_factors) == nullptr) return {};
  OUTRIDER_ASSIGN(rope.factors, file.vector(k_factors, rope.rotary_dim / 2));
  for (const float factor : rope.factors) {
    if (!(factor > 0.0f)) {
      return fail(ErrorCode::corrupt,
                  file.name() + ": tensor 'rope_freqs.weight' holds a factor that is not positive",
                  std::string(k_factors));
    }
  }
  return {};
}

/// The embedding's rows are the vocabulary; what else states its size must agree.
Result<void> read_vocabulary(const GgufFile& file, const Reader& reader, ModelConfig& config) {
  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) {
    return fail(ErrorCode::not_found, file.name() + ": tensor 'token_embd.weight' is missing",
                "token_embd.weight");
  }
  const uint64_t rows = embedding->dims[1];
  if (embedding->dimensions != 2 || rows > limits::vocabulary_max) {
    return fail(ErrorCode::corrupt,
                file.name() + ": tensor 'token_embd.weight' is " + shape_text(*embedding) +
                    ", expected 1 to " + std::to_string(limits::vocabulary_max) + " rows of " +
                    std::to_string(config.hidden),
                "token_embd.weight");
  }
  config.vocab = static_cast<uint32_t>(rows);
  OUTRIDER_TRY(reader.optional("vocab_size", {rows, rows}, rows));
  const GgufValue* tokens = file.find_value("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->count != rows) {
    return fail(ErrorCode::corrupt,
                file.name() + ": metadata 'tokenizer.ggml.tokens' has " +
                    std::to_string(tokens->count) + " entries, 'token_embd.weight' has " +
                    std::to_string(rows) + " rows",
                "tokenizer.ggml.tokens");
  }
  return {};
}

}  // namespace

Result<ModelConfig> ModelConfig::from_gguf(const GgufFile& file) {
  const Architecture* architecture = nullptr;
  OUTRIDER_ASSIGN(architecture, find_architecture(file));
  const Reader reader(file, architecture->name);
  OUTRIDER_TRY(refuse_unsupported(file, reader));

  ModelConfig config;
  config.architecture = architecture->name;
  std::optional<std::string_view> name;
  OUTRIDER_ASSIGN(name, file.find_string("general.name"));
  config.name = name.value_or("");
  OUTRIDER_TRY(read_sizes(file, reader, config));
  OUTRIDER_TRY(read_rope(file, reader, *architecture, config));
  OUTRIDER_TRY(read_vocabulary(file, reader, config));
  config.tied_head = file.find_tensor("output.weight") == nullptr;
  config.qkv_bias =
      architecture->qkv_bias_required || file.find_tensor("blk.0.attn_q.bias") != nullptr;
  return config;
}

}  // namespace outrider::model
