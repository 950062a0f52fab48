#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "kernels/kv_kind.hpp"
#include "kernels/weight_kind.hpp"

/// The whole contract between a model and the hardware under it. `ref/` is the slow judge in
/// double, `cpu/` the real thing; both pass the same tests.
///
/// Exactness: each output element is one written sequence of float operations that depends on
/// nothing but its own inputs. It never depends on the number of rows in the call, on the split
/// over threads, or on the instruction set that ran (kernels/README.md).
namespace outrider::kernels {

/// Geometry of an encoding: `block_elements` consecutive weights of a row take `block_bytes`.
struct WeightTypeInfo {
  std::string_view name;  ///< as GGUF users write it: "Q4_K"
  uint32_t block_elements = 0;
  uint32_t block_bytes = 0;
};

/// Null for a type that this build does not know.
const WeightTypeInfo* weight_type_info(WeightType type);

/// Dequantises `elements` weights (a multiple of the type's block) to float.
void dequantize(WeightType type, const std::byte* data, size_t elements, float* out);

/// A row-major weight matrix [rows, cols] in its file encoding. y = W x has `rows` outputs.
/// `cols` is a multiple of the type's block; the bytes are rows * cols / block * block_bytes.
struct WeightView {
  WeightType type = WeightType::f32;
  const std::byte* data = nullptr;
  size_t rows = 0;
  size_t cols = 0;
};

/// A weight matrix in a back end's own layout. Owned, immutable, shareable between threads.
class Matrix {
 public:
  virtual ~Matrix() = default;
  virtual size_t rows() const = 0;
  virtual size_t cols() const = 0;
  /// All of it, in the layout that Ops::packing() names; empty if the host cannot read it.
  virtual std::span<const std::byte> packed() const = 0;
  virtual size_t bytes() const { return packed().size(); }
};

/// The rows [m, k] of a matmul call: x, or with a norm
/// x[i, :] / sqrt(mean(x[i, :]^2) + eps) * norm.
struct Rows {
  const float* x = nullptr;     ///< [m, k]
  const float* norm = nullptr;  ///< [k], or null
  float eps = 0;
};

/// One of the products of a matmul call: y[i, :] = W row_i (+ bias) (+ y[i, :] when `accumulate`),
/// or, with `up`, y[i, :] = silu(W row_i) * (up row_i).
struct Product {
  const Matrix* w = nullptr;    ///< [n, k]
  const float* bias = nullptr;  ///< [n], or null
  bool accumulate = false;
  float* y = nullptr;          ///< [m, n]
  const Matrix* up = nullptr;  ///< [n, k], or null; then neither bias nor accumulate
};
inline constexpr size_t k_products_max = 4;

/// Where cached keys and values lie. A block holds `block_tokens` consecutive positions (a multiple
/// of 16) of every layer. Inside a block, per layer and kv head, tiles of 16 positions:
///   block:  [layers][kv_heads][K: block_tokens/16 tiles | V: block_tokens/16 tiles]
struct KvGeometry {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t block_tokens = 16;
  uint32_t window = 0;  ///< positions that a row attends to, its own the last; 0: all
  KvKind k_kind = KvKind::fp16;
  KvKind v_kind = KvKind::fp16;
  bool k_hadamard = false;  ///< KvKinds::k_hadamard: says what is in the keys, not where they lie

  size_t head_k_bytes() const { return block_tokens / 16 * kv_tile_bytes(k_kind, head_dim); }
  size_t head_v_bytes() const { return block_tokens / 16 * kv_tile_bytes(v_kind, head_dim); }
  size_t layer_bytes() const { return kv_heads * (head_k_bytes() + head_v_bytes()); }
  size_t block_bytes() const { return layers * layer_bytes(); }
  size_t k_bytes() const { return layers * kv_heads * head_k_bytes(); }  ///< of a block
  size_t v_bytes() const { return layers * kv_heads * head_v_bytes(); }

  friend bool operator==(const KvGeometry&, const KvGeometry&) = default;
};

/// Consecutive rows of one sequence in a step: rows [first_row, first_row + rows) of the batch are
/// positions [first_position, first_position + rows) of the sequence, whose block i lies at
/// pool index block_table[i]. Each row attends to positions 0 … its own, or to the last `window`.
struct Segment {
  const int32_t* block_table = nullptr;
  uint32_t first_row = 0;
  uint32_t rows = 0;
  uint32_t first_position = 0;
};

/// Rotary embedding: `factors` [rotary_dim/2] divides each frequency (llama-3 style), or null.
/// With `hadamard` a head, a power of two long, is then multiplied by the orthonormal Hadamard
/// matrix H[i][j] = (-1)^popcount(i & j) / sqrt(head_dim).
struct RopeParams {
  enum class Style : uint8_t { adjacent, halves };  ///< pairs (2i, 2i+1), or (i, i + dim/2)
  Style style = Style::adjacent;
  uint32_t rotary_dim = 0;  ///< leading elements of each head that rotate
  float base = 10000.0f;
  float scale = 1.0f;  ///< positions are multiplied by it (1 / linear scaling factor)
  const float* factors = nullptr;
  bool hadamard = false;
};

/// cos and sin for positions 0 … positions-1: [positions, rotary_dim/2] each. The back end's own.
class RopeTable {
 public:
  virtual ~RopeTable() = default;
};

/// How a token is drawn of one of several rows of logits: at temperature 0 the highest logit, else
/// the highest (logit - highest logit) / temperature + noise; the lowest id wins a tie.
struct RowDraw {
  uint64_t seed = 0;
  uint64_t position = 0;  ///< of the token, in its sequence
  float temperature = 0;
  uint32_t row = 0;
};

/// Draws tokens where the logits are: the host needs none of them then.
class RowSampler {
 public:
  virtual ~RowSampler() = default;
  /// chosen[i] is the token of draws[i], bit for bit what model/sampler's `sample` chooses without
  /// filters, penalties and bias; -1: a logit of its row is not a finite number. `logits` [rows,
  /// vocabulary] and `chosen` are memory from Ops::allocate.
  virtual void sample(const float* logits, size_t vocabulary, std::span<const RowDraw> draws,
                      int32_t* chosen) = 0;
};

/// The largest step of an engine.
struct StepSizes {
  uint32_t rows = 0;       ///< of a call, at most
  uint32_t segments = 0;   ///< likewise
  uint32_t positions = 0;  ///< of the longest sequence
  size_t columns = 0;      ///< of the widest matrix
  size_t gated = 0;        ///< outputs of the largest product with `up`
  size_t heads = 0;
  size_t vocabulary = 0;
  KvGeometry geometry;
};

/// What the calls of one step read of the host's, from `embed` to the last layer. Steps whose
/// `sizes` are those of one Ops::reserve, at their address, and whose pool is the same make the
/// same calls, but for rows and segments.
struct Step {
  std::span<const int32_t> ids;        ///< [rows]
  std::span<const int32_t> positions;  ///< [rows]
  std::span<const Segment> segments;
  std::byte* pool = nullptr;
  const StepSizes* sizes = nullptr;  ///< activations have room for `rows` of it
};

/// A copy that runs beside what steps compute. It ends with whoever has it: that waits.
class Copy {
 public:
  virtual ~Copy() = default;
  virtual bool is_done() = 0;
  virtual void wait() = 0;
};

/// One back end on one device. Not thread-safe: one step at a time; it uses its own threads inside.
/// Floats and pools are memory from `allocate` or, where the host shares it, any memory; ids,
/// positions, row numbers and segments are the host's. Row-major float unless said.
class Ops {
 public:
  virtual ~Ops() = default;

  /// Numerics class: two back ends of one name give the same bits. Part of the fingerprint.
  virtual std::string_view numerics_class() const = 0;
  /// What runs, for people: "cpu avx512, 2 threads".
  virtual std::string_view description() const = 0;
  virtual uint32_t threads() const = 0;
  /// Changes the number of threads; results do not change.
  virtual void set_threads(uint32_t threads) = 0;

  /// Calls body(i) for each i in [0, count), in any order on the host's threads, and returns when
  /// all are done. The body must not throw and must not call back.
  virtual void parallel_for(size_t count, const std::function<void(size_t)>& body) = 0;

  /// Zeroed memory, aligned to 64 bytes, for KV pools and activations. Throws std::bad_alloc.
  using Buffer = std::unique_ptr<std::byte[], void (*)(std::byte*)>;
  virtual Buffer allocate(size_t bytes) = 0;
  /// Whether the host may read and write that memory itself.
  virtual bool shares_host_memory() const = 0;
  /// From the host's memory to memory from `allocate`, and back.
  virtual void upload(std::span<const std::byte> from, std::byte* to) = 0;
  virtual void download(const std::byte* from, std::span<std::byte> to) = 0;
  /// Memory of the host for `start_download`, whose bytes are there after `wait`.
  virtual Buffer allocate_host(size_t bytes) = 0;
  virtual void start_download(const std::byte* from, std::span<std::byte> to) = 0;

  /// Copies a weight matrix into this back end's layout.
  virtual std::unique_ptr<Matrix> pack(const WeightView& weights) = 0;
  /// Names that layout, and changes with it: equal names read each other's bytes.
  virtual std::string_view packing() const = 0;
  /// The matrix of this type and shape (`data` is not looked at) over bytes that `packed` gave,
  /// aligned to 64, which it shares. Null if they are not as many as it takes.
  virtual std::unique_ptr<Matrix> adopt(const WeightView& shape, size_t bytes,
                                        std::shared_ptr<const std::byte> packed) = 0;
  virtual std::unique_ptr<RopeTable> make_rope_table(const RopeParams& params,
                                                     uint32_t positions) = 0;

  /// Takes what such a step needs besides its activations: none allocates then. Throws
  /// std::bad_alloc.
  virtual void reserve(const StepSizes& sizes) = 0;
  /// Returns when everything that was asked for is done but copies that were begun: until then a
  /// device may still compute.
  virtual void wait() = 0;

  /// Before the calls of a step. False: it runs without them, as one like it did.
  virtual bool begin_step(const Step&) { return true; }
  /// Behind them. False: they are to be made once more.
  virtual bool end_step() { return true; }

  /// out[i, :] = table[ids[i], :]; every id is in [0, table.rows()).
  virtual void embed(const Matrix& table, std::span<const int32_t> ids, float* out) = 0;

  /// Null: the host draws tokens.
  virtual RowSampler* sampler() { return nullptr; }

  /// out[i, :] = x[rows[i], :], each `width` floats; out lies elsewhere.
  virtual void gather(const float* x, std::span<const uint32_t> rows, size_t width, float* out) = 0;

  /// Each product's y from the same rows; at least one and at most k_products_max, all with k
  /// columns. One call does per row once what they share.
  virtual void matmul(const Rows& rows, size_t m, std::span<const Product> products) = 0;

  /// Rotates x [m, heads, head_dim] in place, as RopeParams says; row i stands at positions[i].
  virtual void rope(const RopeTable& table, const int32_t* positions, size_t m, size_t heads,
                    size_t head_dim, float* x) = 0;

  /// Writes keys and values [rows, kv_heads, head_dim] of the segments into the pool.
  virtual void kv_append(const KvGeometry& geometry, uint32_t layer,
                         std::span<const Segment> segments, const float* k, const float* v,
                         std::byte* pool) = 0;

  /// Causal attention over the pool, which already holds the rows' own keys.
  /// q, out [rows, heads, head_dim]; heads is a multiple of kv_heads; scores are q·k * scale.
  virtual void attention(const KvGeometry& geometry, uint32_t layer,
                         std::span<const Segment> segments, const float* q, size_t heads,
                         float scale, const std::byte* pool, float* out) = 0;

  /// Copies whole blocks inside a pool: pool[to] = pool[from].
  virtual void copy_block(const KvGeometry& geometry, int32_t from, int32_t to,
                          std::byte* pool) = 0;
  /// Keys [layers][kv_heads][head_k_bytes] and values [layers][kv_heads][head_v_bytes] of a block,
  /// from the pool to the host's memory and back: the same bytes.
  virtual void read_block(const KvGeometry& geometry, int32_t block, const std::byte* pool,
                          std::byte* k, std::byte* v) = 0;
  virtual void write_block(const KvGeometry& geometry, int32_t block, const std::byte* k,
                           const std::byte* v, std::byte* pool) = 0;
  /// The same two between the pool and memory from `allocate_host`, begun behind everything that
  /// was asked for before but other such copies. Until such a copy is done nobody changes what it
  /// reads, nor looks at what it writes. Null: it is done.
  virtual std::unique_ptr<Copy> start_read_block(const KvGeometry& geometry, int32_t block,
                                                 const std::byte* pool, std::byte* k,
                                                 std::byte* v) {
    read_block(geometry, block, pool, k, v);
    return nullptr;
  }
  virtual std::unique_ptr<Copy> start_write_block(const KvGeometry& geometry, int32_t block,
                                                  const std::byte* k, const std::byte* v,
                                                  std::byte* pool) {
    write_block(geometry, block, k, v, pool);
    return nullptr;
  }
};

/// Slow and plain, inner sums in double; the judge of the other back ends. One thread.
std::unique_ptr<Ops> make_ref_ops();

/// Instruction sets that `cpu/` has code for. All give the same bits.
enum class Isa : uint8_t { portable, avx2, avx_vnni, avx512, amx };
std::string_view isa_name(Isa isa);
/// Sets that this machine can run, slowest first; never empty.
std::span<const Isa> available_isas();
/// The fastest available, or the one that the environment variable OUTRIDER_ISA names.
Isa default_isa();

/// Throws std::runtime_error when that many threads cannot be started. Thread i stays on cpus[i] if
/// there is one; thread 0 is whoever calls.
std::unique_ptr<Ops> make_cpu_ops(uint32_t threads, Isa isa, std::vector<uint32_t> cpus = {});
/// Likewise, for a number that a user chose: the error is of the field "threads".
Result<std::unique_ptr<Ops>> open_cpu_ops(uint32_t threads, Isa isa,
                                          std::vector<uint32_t> cpus = {});
/// GPU number `index` (kernels/cuda/); what the host does for it takes so many threads. `yields`:
/// who else computes there goes first. Where there is none, or this build has no code for it, the
/// error is of the field "device".
Result<std::unique_ptr<Ops>> open_cuda_ops(uint32_t index, uint32_t threads,
                                           std::vector<uint32_t> cpus = {}, bool yields = false);

}  // namespace outrider::kernels
