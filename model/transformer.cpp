#include "model/transformer.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.hpp"

namespace outrider::model {

kernels::KvGeometry kv_geometry(const ModelConfig& config, uint32_t block_tokens,
                                const kernels::KvKinds& kinds) {
  return {.layers = config.layers,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .block_tokens = block_tokens,
          .k_kind = kinds.k,
          .v_kind = kinds.v,
          .k_hadamard = kinds.k_hadamard};
}

Transformer::Transformer(std::shared_ptr<const LoadedModel> model,
                         const kernels::KvGeometry& geometry, const Sizes& sizes)
    : model_(std::move(model)), geometry_(geometry), sizes_(sizes) {
  const ModelConfig& config = model_->config;
  kernels::RopeParams rope = config.rope.params();
  rope.hadamard = geometry.k_hadamard;
  rope_ = model_->ops->make_rope_table(rope, sizes.positions);
  hidden_ = take(size_t{sizes.rows} * config.hidden);
  q_ = take(size_t{sizes.rows} * config.q_dim());
  k_ = take(size_t{sizes.rows} * config.kv_dim());
  v_ = take(size_t{sizes.rows} * config.kv_dim());
  attended_ = take(size_t{sizes.rows} * config.q_dim());
  gated_ = take(size_t{sizes.rows} * config.ffn);
  chosen_ = take(size_t{sizes.logit_rows} * config.hidden);
  logits_ = take(size_t{sizes.logit_rows} * config.vocab);
  step_sizes_ = {.rows = sizes.rows,
                 .segments = std::min(sizes.sequences, sizes.rows),
                 .positions = sizes.positions,
                 .columns = std::max({config.hidden, config.q_dim(), config.ffn}),
                 .gated = config.ffn,
                 .heads = config.heads,
                 .vocabulary = config.vocab,
                 .geometry = geometry};
  model_->ops->reserve(step_sizes_);
  if (model_->ops->shares_host_memory()) return;
  const auto keep = [&](kernels::Ops::Buffer buffer) {
    return buffers_.emplace_back(std::move(buffer)).get();
  };
  const size_t drawn = sizes.logit_rows * sizeof(int32_t);
  drawn_ = reinterpret_cast<int32_t*>(keep(model_->ops->allocate(drawn)));
  host_drawn_ = reinterpret_cast<int32_t*>(keep(model_->ops->allocate_host(drawn)));
  host_logits_ = reinterpret_cast<float*>(
      keep(model_->ops->allocate_host(size_t{sizes.logit_rows} * config.vocab * sizeof(float))));
}

float* Transformer::take(size_t floats) {
  buffers_.push_back(model_->ops->allocate(floats * sizeof(float)));
  return reinterpret_cast<float*>(buffers_.back().get());
}

void Transformer::forward(const StepBatch& batch, std::byte* pool) {
  const size_t m = batch.ids.size();
  OUTRIDER_CHECK(m <= sizes_.rows && m == batch.positions.size(), m, sizes_.rows);
  kernels::Ops& ops = *model_->ops;
  if (!ops.begin_step({batch.ids, batch.positions, batch.segments, pool, &step_sizes_})) return;
  do {
    run_layers(batch, pool);
  } while (!ops.end_step());
}

void Transformer::run_layers(const StepBatch& batch, std::byte* pool) {
  model_->ops->embed(*model_->weights.token_embd, batch.ids, hidden_);
  for (uint32_t layer = 0; layer < model_->config.layers; ++layer) {
    attention_block(layer, batch, pool);
    feed_forward_block(layer, batch.ids.size());
  }
}

/// hidden += O · attention(rope(Q x), rope(K x), V x), x = norm(hidden)
void Transformer::attention_block(uint32_t layer, const StepBatch& batch, std::byte* pool) {
  const ModelConfig& c = model_->config;
  const LayerWeights& w = model_->weights.layers[layer];
  kernels::Ops& ops = *model_->ops;
  const size_t m = batch.ids.size();
  const kernels::Product qkv[] = {{.w = w.attn_q.get(), .bias = w.q_bias.data(), .y = q_},
                                  {.w = w.attn_k.get(), .bias = w.k_bias.data(), .y = k_},
                                  {.w = w.attn_v.get(), .bias = w.v_bias.data(), .y = v_}};
  ops.matmul({hidden_, w.attn_norm.data(), c.rms_eps}, m, qkv);
  ops.rope(*rope_, batch.positions.data(), m, c.heads, c.head_dim, q_);
  ops.rope(*rope_, batch.positions.data(), m, c.kv_heads, c.head_dim, k_);
  ops.kv_append(geometry_, layer, batch.segments, k_, v_, pool);
  ops.attention(geometry_, layer, batch.segments, q_, c.heads, c.attention_scale, pool, attended_);
  const kernels::Product output[] = {{.w = w.attn_output.get(), .accumulate = true, .y = hidden_}};
  ops.matmul({attended_}, m, output);
}

/// hidden += down · (silu(gate x) * up x), x = norm(hidden)
void Transformer::feed_forward_block(uint32_t layer, size_t m) {
  const ModelConfig& c = model_->config;
  const LayerWeights& w = model_->weights.layers[layer];
  kernels::Ops& ops = *model_->ops;
  const kernels::Product gated[] = {{.w = w.ffn_gate.get(), .y = gated_, .up = w.ffn_up.get()}};
  ops.matmul({hidden_, w.ffn_norm.data(), c.rms_eps}, m, gated);
  const kernels::Product down[] = {{.w = w.ffn_down.get(), .accumulate = true, .y = hidden_}};
  ops.matmul({gated_}, m, down);
}

std::span<const float> Transformer::logits(std::span<const uint32_t> rows) {
  compute_logits(rows);
  all_rows_.resize(rows.size());
  std::iota(all_rows_.begin(), all_rows_.end(), 0u);
  return read(all_rows_, {}).logits;
}

void Transformer::compute_logits(std::span<const uint32_t> rows) {
  const ModelConfig& c = model_->config;
  OUTRIDER_CHECK(rows.size() <= sizes_.logit_rows, rows.size(), sizes_.logit_rows);
  kernels::Ops& ops = *model_->ops;
  ops.gather(hidden_, rows, c.hidden, chosen_);
  const kernels::Product head[] = {{.w = &model_->weights.head(), .y = logits_}};
  ops.matmul({chosen_, model_->weights.output_norm.data(), c.rms_eps}, rows.size(), head);
  computed_ = rows.size();
}

Transformer::Results Transformer::read(std::span<const uint32_t> rows,
                                       std::span<const kernels::RowDraw> draws) {
  kernels::Ops& ops = *model_->ops;
  const size_t width = model_->config.vocab;
  if (ops.shares_host_memory()) return {{logits_, computed_ * width}, {}};
  OUTRIDER_CHECK(draws.size() <= sizes_.logit_rows, draws.size());
  const auto bring = [&ops]<class T>(const T* from, std::span<T> to) {
    ops.start_download(reinterpret_cast<const std::byte*>(from), std::as_writable_bytes(to));
  };
  if (!draws.empty()) {
    ops.sampler()->sample(logits_, width, draws, drawn_);
    bring(drawn_, std::span(host_drawn_, draws.size()));
  }
  for (size_t i = 0; i < rows.size();) {  // neighbours at once
    size_t end = i + 1;
    while (end < rows.size() && rows[end] == rows[i] + (end - i)) ++end;
    const size_t at = rows[i] * width;
    bring(logits_ + at, std::span(host_logits_ + at, (end - i) * width));
    i = end;
  }
  if (!draws.empty() || !rows.empty()) ops.wait();
  return {{host_logits_, computed_ * width}, {host_drawn_, draws.size()}};
}

}  // namespace outrider::model
