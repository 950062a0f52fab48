#include "tests/support/reference_engine.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.hpp"

namespace outrider::testing_support {

ReferenceEngine::ReferenceEngine(std::shared_ptr<const model::LoadedModel> model,
                                 uint32_t context_tokens)
    : model_(std::move(model)),
      context_tokens_(context_tokens),
      rope_(model_->ops->make_rope_table(model_->config.rope.params(), context_tokens)),
      keys_(model_->config.layers),
      values_(model_->config.layers) {}

void ReferenceEngine::crop(uint32_t length) {
  OUTRIDER_CHECK(length <= length_, length, length_);
  length_ = length;
  for (auto& keys : keys_) keys.resize(size_t{length} * model_->config.kv_dim());
  for (auto& values : values_) values.resize(size_t{length} * model_->config.kv_dim());
}

Logits ReferenceEngine::prefill(std::span<const int32_t> prompt) {
  crop(0);
  return update(prompt).back();
}

Logits ReferenceEngine::decode(int32_t id) {
  return update(std::span(&id, 1)).back();
}

/// softmax(q k / sqrt(d)) v for the last `rows` positions; the keys are already there.
void ReferenceEngine::attention(uint32_t layer, const float* q, size_t rows, float* out) const {
  const model::ModelConfig& c = model_->config;
  const float* keys = keys_[layer].data();
  const float* values = values_[layer].data();
  for (size_t row = 0; row < rows; ++row) {
    const size_t visible = length_ - rows + row + 1;
    for (size_t head = 0; head < c.heads; ++head) {
      const size_t at = (row * c.heads + head) * c.head_dim;
      const size_t kv_at = head / (c.heads / c.kv_heads) * c.head_dim;
      std::vector<double> weights(visible, 0.0);
      for (size_t t = 0; t < visible; ++t) {
        for (size_t d = 0; d < c.head_dim; ++d) {
          weights[t] += double{q[at + d]} * keys[t * c.kv_dim() + kv_at + d];
        }
        weights[t] *= double{c.attention_scale};
      }
      const double highest = *std::max_element(weights.begin(), weights.end());
      for (double& w : weights) w = std::exp(w - highest);
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (size_t d = 0; d < c.head_dim; ++d) {
        double value = 0;
        for (size_t t = 0; t < visible; ++t) {
          value += weights[t] * values[t * c.kv_dim() + kv_at + d];
        }
        out[at + d] = static_cast<float>(value / sum);
      }
    }
  }
}

std::vector<Logits> ReferenceEngine::update(std::span<const int32_t> ids) {
  const model::ModelConfig& c = model_->config;
  kernels::Ops& ops = *model_->ops;
  const size_t m = ids.size();
  OUTRIDER_CHECK(m > 0 && length_ + m <= context_tokens_, m, length_, context_tokens_);
  std::vector<int32_t> positions(m);
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(length_));
  length_ += static_cast<uint32_t>(m);

  std::vector<float> x(m * c.hidden);
  std::vector<float> q(m * c.q_dim()), k(m * c.kv_dim()), v(m * c.kv_dim()), o(m * c.q_dim());
  std::vector<float> gated(m * c.ffn);
  ops.embed(*model_->weights.token_embd, ids, x.data());
  for (uint32_t layer = 0; layer < c.layers; ++layer) {
    const model::LayerWeights& w = model_->weights.layers[layer];
    const auto multiply = [&](const kernels::Rows& rows, const kernels::Product& product) {
      ops.matmul(rows, m, {&product, 1});
    };
    const kernels::Rows attn_in = {x.data(), w.attn_norm.data(), c.rms_eps};
    multiply(attn_in, {.w = w.attn_q.get(), .bias = w.q_bias.data(), .y = q.data()});
    multiply(attn_in, {.w = w.attn_k.get(), .bias = w.k_bias.data(), .y = k.data()});
    multiply(attn_in, {.w = w.attn_v.get(), .bias = w.v_bias.data(), .y = v.data()});
    ops.rope(*rope_, positions.data(), m, c.heads, c.head_dim, q.data());
    ops.rope(*rope_, positions.data(), m, c.kv_heads, c.head_dim, k.data());
    keys_[layer].insert(keys_[layer].end(), k.begin(), k.end());
    values_[layer].insert(values_[layer].end(), v.begin(), v.end());
    attention(layer, q.data(), m, o.data());
    multiply({o.data()}, {.w = w.attn_output.get(), .accumulate = true, .y = x.data()});
    const kernels::Rows ffn_in = {x.data(), w.ffn_norm.data(), c.rms_eps};
    multiply(ffn_in, {.w = w.ffn_gate.get(), .y = gated.data(), .up = w.ffn_up.get()});
    multiply({gated.data()}, {.w = w.ffn_down.get(), .accumulate = true, .y = x.data()});
  }
  std::vector<Logits> out(m, Logits(c.vocab));
  for (size_t i = 0; i < m; ++i) {
    const kernels::Product head = {.w = &model_->weights.head(), .y = out[i].data()};
    ops.matmul({x.data() + i * c.hidden, model_->weights.output_norm.data(), c.rms_eps}, 1,
               {&head, 1});
  }
  return out;
}

int32_t argmax(const Logits& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<int32_t> greedy(ReferenceEngine& engine, std::span<const int32_t> prompt,
                            uint32_t count) {
  std::vector<int32_t> output = {argmax(engine.prefill(prompt))};
  while (output.size() < count) output.push_back(argmax(engine.decode(output.back())));
  return output;
}

std::vector<int32_t> greedy_with_drafts(ReferenceEngine& engine, std::span<const int32_t> prompt,
                                        uint32_t count, const Drafter& draft) {
  std::vector<int32_t> output = {argmax(engine.prefill(prompt))};
  while (output.size() < count) {
    // The last token and the drafted ones in one update: each row says what really follows.
    std::vector<int32_t> ids = {output.back()};
    const std::vector<int32_t> drafted = draft(output);
    ids.insert(ids.end(), drafted.begin(), drafted.end());
    const uint32_t before = engine.length();
    const std::vector<Logits> rows = engine.update(ids);
    size_t accepted = 0;
    while (true) {
      output.push_back(argmax(rows[accepted]));
      if (accepted == drafted.size() || drafted[accepted] != output.back()) break;
      ++accepted;
    }
    engine.crop(before + 1 + static_cast<uint32_t>(accepted));
  }
  output.resize(count);
  return output;
}

}  // namespace outrider::testing_support
