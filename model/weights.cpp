#include "model/weights.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "model/weights_cache.hpp"

namespace outrider::model {
namespace {

/// What one thread digests at a time: part of every weights digest.
constexpr size_t k_piece_bytes = size_t{128} << 10;

/// Tensors that say nothing beyond the configuration: rotary frequencies, now and as old
/// converters wrote them.
bool is_configuration(std::string_view name) {
  return name == "rope_freqs.weight" || name.ends_with(".attn_rot_embd");
}

/// Looks up and checks every tensor before the first one is packed, then packs and digests them in
/// one pass in the network's own order, whatever the file's order is.
class Loader {
 public:
  Loader(const GgufFile& file, const ModelConfig& config, kernels::Ops& ops,
         const LoadOptions& options)
      : file_(file), config_(config), ops_(ops), options_(options) {}

  Result<void> plan(Weights& weights);
  Result<void> fill(Weights& weights) const;

 private:
  /// Digests all tensors and, unless told not to, packs the matrices.
  Result<Digest256> read_tensors(bool pack) const;
  Result<Digest256> read_through_cache(bool& from_cache) const;
  void warn(const std::string& text) const {
    if (options_.warn) options_.warn(text);
  }

  Result<void> plan_layer(uint32_t index, LayerWeights& layer);
  Result<void> matrix(const std::string& name, uint64_t rows, uint64_t cols,
                      std::unique_ptr<kernels::Matrix>& target);
  Result<void> vector(const std::string& name, uint64_t size, FloatVector& target);
  Result<void> check_all_used() const;

  const GgufFile& file_;
  const ModelConfig& config_;
  kernels::Ops& ops_;
  const LoadOptions& options_;
  std::vector<MatrixSlot> jobs_;  ///< of vectors, too, without a target
};

Result<void> Loader::matrix(const std::string& name, uint64_t rows, uint64_t cols,
                            std::unique_ptr<kernels::Matrix>& target) {
  const auto view = file_.matrix(name, rows, cols);
  if (!view) return view.error();
  jobs_.push_back({file_.find_tensor(name), *view, &target});
  return {};
}

Result<void> Loader::vector(const std::string& name, uint64_t size, FloatVector& target) {
  const auto values = file_.vector(name, size);
  if (!values) return values.error();
  target = FloatVector(ops_, *values);
  jobs_.push_back({file_.find_tensor(name), {}, nullptr});
  return {};
}

Result<void> Loader::plan_layer(uint32_t index, LayerWeights& layer) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const uint64_t hidden = config_.hidden;
  const uint64_t q_dim = config_.q_dim();
  const uint64_t kv_dim = config_.kv_dim();
  OUTRIDER_TRY(vector(prefix + "attn_norm.weight", hidden, layer.attn_norm));
  OUTRIDER_TRY(matrix(prefix + "attn_q.weight", q_dim, hidden, layer.attn_q));
  OUTRIDER_TRY(matrix(prefix + "attn_k.weight", kv_dim, hidden, layer.attn_k));
  OUTRIDER_TRY(matrix(prefix + "attn_v.weight", kv_dim, hidden, layer.attn_v));
  if (config_.qkv_bias) {
    OUTRIDER_TRY(vector(prefix + "attn_q.bias", q_dim, layer.q_bias));
    OUTRIDER_TRY(vector(prefix + "attn_k.bias", kv_dim, layer.k_bias));
    OUTRIDER_TRY(vector(prefix + "attn_v.bias", kv_dim, layer.v_bias));
  }
  OUTRIDER_TRY(matrix(prefix + "attn_output.weight", hidden, q_dim, layer.attn_output));
  OUTRIDER_TRY(vector(prefix + "ffn_norm.weight", hidden, layer.ffn_norm));
  OUTRIDER_TRY(matrix(prefix + "ffn_gate.weight", config_.ffn, hidden, layer.ffn_gate));
  OUTRIDER_TRY(matrix(prefix + "ffn_up.weight", config_.ffn, hidden, layer.ffn_up));
  return matrix(prefix + "ffn_down.weight", hidden, config_.ffn, layer.ffn_down);
}

Result<void> Loader::plan(Weights& weights) {
  // The largest first, when the least is packed: what is mapped of it comes on top.
  OUTRIDER_TRY(matrix("token_embd.weight", config_.vocab, config_.hidden, weights.token_embd));
  if (!config_.tied_head) {
    OUTRIDER_TRY(matrix("output.weight", config_.vocab, config_.hidden, weights.output));
  }
  weights.layers.resize(config_.layers);  // before any job points into it
  for (uint32_t i = 0; i < config_.layers; ++i) OUTRIDER_TRY(plan_layer(i, weights.layers[i]));
  OUTRIDER_TRY(vector("output_norm.weight", config_.hidden, weights.output_norm));
  return check_all_used();
}

Result<void> Loader::check_all_used() const {
  std::set<std::string_view> used;
  for (const MatrixSlot& job : jobs_) used.insert(job.tensor->name);
  for (const GgufTensor& tensor : file_.tensors()) {
    if (used.contains(tensor.name) || is_configuration(tensor.name)) continue;
    return fail(ErrorCode::unsupported,
                file_.name() + ": tensor '" + std::string(tensor.name) +
                    "' has no place in this build's " + config_.architecture + " network of " +
                    std::to_string(config_.layers) + " layers",
                std::string(tensor.name));
  }
  return {};
}

/// SHA-256 over the numbers of the configuration that output bits depend on, and the tensors.
Digest256 digest_network(const ModelConfig& config, const Digest256& tensors) {
  Sha256 sha;
  sha.update(config.architecture.size()).update(config.architecture);
  for (const uint32_t number : {config.layers, config.hidden, config.ffn, config.heads,
                                config.kv_heads, config.head_dim, config.vocab}) {
    sha.update(uint64_t{number});
  }
  const RopeConfig& rope = config.rope;
  sha.update(static_cast<uint64_t>(rope.style)).update(uint64_t{rope.rotary_dim});
  for (const float number : {config.rms_eps, config.attention_scale, rope.base, rope.scale}) {
    sha.update(uint64_t{std::bit_cast<uint32_t>(number)});
  }
  sha.update(rope.factors.size()).update(std::as_bytes(std::span(rope.factors)));
  return sha.update(std::as_bytes(std::span(tensors))).finish();
}

/// SHA-256 over name, encoding, shape and the digests of the bytes' pieces, which any thread takes.
Digest256 digest_tensor(const GgufTensor& tensor, kernels::Ops& ops) {
  std::vector<Digest256> pieces((tensor.data.size() + k_piece_bytes - 1) / k_piece_bytes);
  ops.parallel_for(pieces.size(), [&](size_t i) {
    const size_t begin = i * k_piece_bytes;
    const size_t size = std::min(k_piece_bytes, tensor.data.size() - begin);
    pieces[i] = Sha256().update(tensor.data.subspan(begin, size)).finish();
  });
  Sha256 sha;
  sha.update(tensor.name.size()).update(tensor.name);
  sha.update(static_cast<uint64_t>(tensor.type));
  for (const uint64_t dim : tensor.dims) sha.update(dim);
  return sha.update(std::as_bytes(std::span(pieces))).finish();
}

Result<Digest256> Loader::read_tensors(bool pack) const {
  Sha256 tensors;
  uint64_t total = 0;
  for (const MatrixSlot& job : jobs_) total += job.tensor->data.size();
  uint64_t done = 0;
  for (const MatrixSlot& job : jobs_) {
    const Digest256 digest = digest_tensor(*job.tensor, ops_);
    tensors.update(std::as_bytes(std::span(digest)));
    if (pack && job.target != nullptr) *job.target = ops_.pack(job.view);
    file_.release(job.tensor->data);
    done += job.tensor->data.size();
    if (options_.progress && !options_.progress(done, total)) {
      return fail(ErrorCode::cancelled, "the loading was stopped");
    }
  }
  return tensors.finish();
}

Result<Digest256> Loader::read_through_cache(bool& from_cache) const {
  std::vector<MatrixSlot> slots;
  std::copy_if(jobs_.begin(), jobs_.end(), std::back_inserter(slots),
               [](const MatrixSlot& job) { return job.target != nullptr; });
  WeightsCache cache(options_.cache_directory, file_, slots, ops_);
  auto cached = cache.load([&] { return read_tensors(false); }, options_.progress);
  from_cache = cached.ok();
  if (cached || cached.error().code == ErrorCode::cancelled) return cached;
  if (cached.error().code != ErrorCode::not_found) {
    warn("weights cache not used: " + cached.error().message);
  }
  auto tensors = read_tensors(true);
  if (!tensors) return tensors;
  if (const auto saved = cache.save(*tensors, options_.progress); !saved) {
    if (saved.error().code == ErrorCode::cancelled) return saved.error();
    warn("weights cache not written: " + saved.error().message);
  }
  return tensors;
}

Result<void> Loader::fill(Weights& weights) const {
  const bool cached =
      !options_.cache_directory.empty() && file_.identity() != nullptr && ops_.shares_host_memory();
  const auto tensors = cached ? read_through_cache(weights.from_cache) : read_tensors(true);
  if (!tensors) return tensors.error();
  for (const MatrixSlot& job : jobs_) weights.file_bytes += job.tensor->data.size();
  weights.digest = digest_network(config_, *tensors);
  return {};
}

}  // namespace

FloatVector::FloatVector(kernels::Ops& ops, std::span<const float> values)
    : memory_(ops.allocate(values.size_bytes())), size_(values.size()) {
  ops.upload(std::as_bytes(values), memory_.get());
}

Result<Weights> load_weights(const GgufFile& file, const ModelConfig& config, kernels::Ops& ops,
                             const LoadOptions& options) {
  Weights weights;
  Loader loader(file, config, ops, options);
  OUTRIDER_TRY(loader.plan(weights));
  OUTRIDER_TRY(loader.fill(weights));
  return weights;
}

}  // namespace outrider::model
