#pragma once

#include <cstddef>
#include <cstdint>

#include "base/limits.hpp"
#include "kernels/cpu/panel_layout.hpp"
#include "kernels/kv_kind.hpp"

/// What a thread asks of the kernels of one instruction set. Plain data and pointers only: this
/// header is seen by code of every instruction set (see simd.hpp). Thread-safe; no state.
namespace outrider::kernels {

/// [begin, end).
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

/// Rows [m, k] as 16-bit codes: x[i, j] is about scale[i] * codes[i, j].
///   scale = largest magnitude / k_code_max; code = x * (k_code_max / largest), to nearest even.
/// A row that is smaller than k_quantized_least throughout counts as zeros; one with a NaN or an
/// infinity has the scale NaN.
struct QuantizedRows {
  const int16_t* codes = nullptr;  ///< [m, k]
  const float* sums = nullptr;     ///< [m, k / k_sum_group] of codes: exact
  const float* scale = nullptr;    ///< [m]
  /// The codes and sums once more as `split_row` lays them out, or null.
  const std::byte* planes = nullptr;
};
inline constexpr float k_code_max = 32767.0f;
inline constexpr float k_quantized_least = 0x1p-100f;
inline constexpr size_t k_sum_group = 32;

/// 16 rows of codes in two planes of bytes, code = 256 * high + low: block by block of k_sum_group
/// k, [16 rows][32] signed high, [16 rows][32] unsigned low, [16 rows] float sums. Of each 8 k the
/// bytes are k 0, 4, 1, 5, 2, 6, 3, 7, which is how 4-bit weights come out of a word.
inline constexpr size_t k_plane_rows = 16;
inline constexpr size_t k_plane_bytes = k_plane_rows * k_sum_group;
inline constexpr size_t k_plane_block_bytes = 2 * k_plane_bytes + k_plane_rows * sizeof(float);

/// y [m, n] = packed weights [n, k] times rows [m, k]. Output element (i, j) is, for float weights,
///   acc = 0; acc = fma(w[j, k], x[i, k], acc) for ascending k;
/// and for coded weights, group by group in ascending k, with the integer sum exact:
///   acc = 0; acc = fma(float(sum of code * rows.codes), d * scale, acc);
///            acc = fma(m * offset, rows.sums, acc) if the kind has offsets;
///   acc = acc * rows.scale;
/// then for both y = acc; y = y + bias[j] if there is a bias; y = y + old y if it accumulates.
/// With up_panels (coded weights only), y = acc / (1 + e^-acc) * up_acc.
struct MatmulArgs {
  const std::byte* panels = nullptr;
  const std::byte* up_panels = nullptr;  ///< of the same kind and shape, or null
  size_t panel_bytes = 0;
  PanelKind kind = PanelKind::f32;
  size_t n = 0;
  size_t k = 0;
  const float* x = nullptr;  ///< for float weights
  QuantizedRows rows;        ///< for coded weights
  const float* bias = nullptr;
  bool accumulate = false;
  float* y = nullptr;
};

/// Rows of one pass of float weights: its scratch stays in L1 and L2.
inline constexpr size_t k_float_rows_max = 256;
/// k of one pass of coded weights over many rows, a multiple of every super; rows of one call; what
/// they leave between passes.
inline constexpr size_t k_code_k = 2048;
inline constexpr size_t k_code_rows_max = 512;
inline constexpr size_t k_code_acc_floats = 16'384;
static_assert(k_code_acc_floats >= 32 * k_code_rows_max);

/// Where the keys and values of one layer lie: tiles of 16 positions (kernels/kv_codec.hpp).
struct KvLayer {
  std::byte* pool = nullptr;  ///< at the layer inside block 0
  size_t block_bytes = 0;
  size_t block_tiles = 0;  ///< block_tokens / 16
  size_t head_bytes = 0;   ///< K and V of one kv head in one block
  size_t v_at = 0;         ///< of V behind K
  size_t kv_heads = 0;
  size_t head_dim = 0;
  KvKind k_kind = KvKind::fp16;
  KvKind v_kind = KvKind::fp16;
  size_t k_tile_bytes = 0;
  size_t v_tile_bytes = 0;
  const int8_t* k_codebook = nullptr;  ///< [16], for kinds that look up
  const int8_t* v_codebook = nullptr;
};

inline constexpr size_t k_tile_positions = 16;
/// Positions of one softmax: partial results exist per chunk of absolute positions and merge in
/// ascending order.
inline constexpr size_t k_chunk_positions = 256;
/// Query vectors (rows times heads of a group) that share one pass over K and V: at most
/// k_queries_max, and at most this many floats.
inline constexpr size_t k_queries_max = 64;
inline constexpr size_t k_query_floats_max = 8192;
inline constexpr size_t k_head_dim_max = limits::model_head_dim_max;
static_assert(k_query_floats_max >= k_head_dim_max && k_head_dim_max % 16 == 0);

/// In whole vectors of 16.
[[gnu::always_inline]] constexpr size_t whole_lanes(size_t n) {
  return (n + 15) / 16 * 16;
}

[[gnu::always_inline]] constexpr size_t queries_max(size_t head_dim) {
  const size_t fitting = k_query_floats_max / whole_lanes(head_dim);
  return fitting < k_queries_max ? fitting : k_queries_max;
}

/// Room of a partial result of one query: max, sum, then (at 16) head_dim values.
[[gnu::always_inline]] constexpr size_t partial_floats(size_t head_dim) {
  return whole_lanes(head_dim) + 16;
}

/// More than any position: attention without a window.
inline constexpr size_t k_no_window = size_t{1} << 48;
/// The first position that the row at `position` attends to.
[[gnu::always_inline]] constexpr size_t window_start(size_t window, size_t position) {
  return position < window ? 0 : position - window + 1;
}

/// Some rows of one segment and some heads of one kv head's group: the queries whose results are
/// merged together. At most queries_max(head_dim).
struct AttentionUnit {
  const int32_t* block_table = nullptr;
  size_t first_row = 0;  ///< in q and out
  size_t rows = 0;
  size_t first_position = 0;  ///< of first_row in its sequence
  size_t kv_head = 0;
  size_t first_head = 0;  ///< in q
  size_t heads = 0;
  size_t window = k_no_window;  ///< of each row
  size_t first_chunk = 0;       ///< that its first row attends to
  size_t end_chunk = 0;         ///< behind its last row's
  /// Null: one item computes all chunks and writes to out. Else [chunks][rows * heads] partial
  /// results for `combine`.
  float* partials = nullptr;
};

/// A piece of work: some chunks of one unit; or of several units whose blocks are the same there,
/// all with rows that attend to the whole of these chunks. At most queries_max(head_dim) queries in
/// all.
struct AttentionItem {
  size_t first_unit = 0;
  size_t units = 1;
  size_t first_chunk = 0;
  size_t chunks = 0;
};

struct AttentionArgs {
  KvLayer kv;
  const AttentionUnit* units = nullptr;
  const float* q = nullptr;  ///< [rows, heads, head_dim]
  float* out = nullptr;      ///< likewise
  size_t heads = 0;
  float scale = 1.0f;
};

struct KernelTable {
  /// Rows begin at a multiple of k_plane_rows if they have planes.
  void (*matmul)(const MatmulArgs&, Range rows, Range panels);
  /// One row of QuantizedRows; rms_norm comes before if `norm` is given.
  void (*quantize_row)(const float* x, const float* norm, float eps, size_t k, int16_t* codes,
                       float* sums, float* scale);
  /// One row of `planes`, row of its 16 rows' blocks. Null where matmul has no use for planes.
  void (*split_row)(const int16_t* codes, const float* sums, size_t k, size_t row,
                    std::byte* blocks) = nullptr;
  /// Items in turn; each fetches what the one after it reads first.
  void (*attend)(const AttentionArgs&, const AttentionItem*, size_t count);
  /// Merges a unit's partial results of all chunks into out.
  void (*combine)(const AttentionArgs&, const AttentionUnit&);
  /// Keys and values [rows, kv_heads, head_dim] of consecutive positions.
  void (*kv_append)(const KvLayer&, const int32_t* block_table, size_t first_position, size_t rows,
                    const float* k, const float* v);
  void (*rms_norm)(const float* x, const float* weight, float eps, size_t d, float* out);
  /// One head; cosine and sine [rotary_dim / 2].
  void (*rope_adjacent)(const float* cosine, const float* sine, size_t rotary_dim, float* x);
  void (*rope_halves)(const float* cosine, const float* sine, size_t rotary_dim, float* x);
  /// One head, a power of two long: RopeParams::hadamard.
  void (*hadamard)(size_t head_dim, float* x);
  void (*swiglu)(const float* gate, const float* up, size_t n, float* out);
  void (*exp)(const float* x, size_t n, float* out);
  void (*exp2_of_negative)(const float* x, size_t n, float* out);
  // For kernels/host.hpp.
  bool (*find_peaks)(const float* row, size_t n, float* peaks);
  void (*philox_block)(const uint32_t* counter, const uint32_t* key, uint32_t* out);
};

namespace portable {
const KernelTable& kernel_table() noexcept;
}
namespace avx2 {
const KernelTable& kernel_table() noexcept;
}
namespace avx_vnni {
const KernelTable& kernel_table() noexcept;
}
namespace avx512 {
const KernelTable& kernel_table() noexcept;
}
namespace amx {
const KernelTable& kernel_table() noexcept;
}

}  // namespace outrider::kernels
