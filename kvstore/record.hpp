#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/block_id.hpp"
#include "base/result.hpp"
#include "base/shared_bytes.hpp"

/// The bytes of one stored block. They prove themselves: a check sum of the header, one of
/// everything, the ids and the tokens, so that no index is needed to trust them.
namespace outrider::kvstore {

/// One named tensor of a block, all its layers one after the other: keys, values, or whatever else
/// a model's attention keeps ("k_sem", "k_geo", chunk means).
struct Tensor {
  std::string name;     ///< 1 to limits::kv_tensor_name_bytes_max bytes, unique in its block
  uint32_t layers = 1;  ///< at least 1; bytes.size() is a multiple of it
  SharedBytes bytes;

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// A block as its owner hands it over. `ns` is the namespace: model, numerics and KV kinds.
struct Block {
  Digest256 ns{};
  BlockId id{};
  BlockId parent{};    ///< the id before it in its chain; zeros (or a root) for the first
  uint32_t depth = 0;  ///< blocks before it in its chain
  std::vector<int32_t> tokens;
  std::vector<Tensor> tensors;
};

struct TensorView {
  std::string_view name;
  uint32_t layers = 1;
  std::span<const std::byte> bytes;  ///< [layers, bytes.size() / layers]
};

/// A decoded record; views point into the bytes that were decoded.
struct RecordView {
  Digest256 ns{};
  BlockId id{};
  BlockId parent{};
  uint32_t depth = 0;
  std::vector<int32_t> tokens;
  std::vector<TensorView> tensors;
};

/// A record as read: bytes that stay valid as long as any copy of this lives.
class RecordBytes {
 public:
  RecordBytes() = default;
  RecordBytes(std::shared_ptr<const void> owner, std::span<const std::byte> bytes)
      : owner_(std::move(owner)), bytes_(bytes) {}
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

/// Bytes that `encode` makes of a block.
uint64_t encoded_bytes(const Block& block);

/// Errors: too_large, invalid_argument for a block that breaks a rule above.
Result<std::vector<std::byte>> encode(const Block& block);

/// Errors: corrupt. Trusts nothing, allocates no more than the record has tokens and tensors.
Result<RecordView> decode(std::span<const std::byte> record);

}  // namespace outrider::kvstore
