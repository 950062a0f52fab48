#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/hash.hpp"

/// Names of KV blocks by content: equal ids mean equal bits, on every node and after every restart.
/// An id stands for all tokens from the sequence's start to the block's end, for the network and
/// the numerics that computed them, and for who may share them. Nothing in it depends on slots, the
/// context's length or the host.
namespace outrider {

using BlockId = Digest256;

/// For tables by id: ids are as good as random.
struct BlockIdHash {
  size_t operator()(const BlockId& id) const {
    size_t bits = 0;
    std::memcpy(&bits, id.data(), sizeof(bits));
    return bits;
  }
};

/// SHA-256 of a list of named values. Lengths stand before names and values, so that two different
/// lists are never the same message.
class FieldDigest {
 public:
  FieldDigest& field(std::string_view name, std::string_view value);
  FieldDigest& field(std::string_view name, uint64_t value);
  /// Once.
  Digest256 finish() { return hash_.finish(); }

 private:
  Sha256 hash_;
};

/// Who shares blocks: the requests of one tenant with one salt.
struct SharingScope {
  std::string_view tenant;  ///< Empty: the public one, which no named tenant is.
  std::string_view salt;    ///< Empty: none.
};

/// Parent of first blocks: HMAC-SHA-256 by the cluster's secret over the namespace (digest of all
/// but the tokens that KV bits depend on) and the scope. Who does not know the secret cannot tell
/// which prompt an id stands for.
BlockId root_block_id(std::string_view secret, const Digest256& kv_namespace,
                      const SharingScope& scope);

/// Names blocks one after another. Not thread-safe; allocates nothing after its construction.
class BlockHasher {
 public:
  /// SHA-256(parent | number of tokens | tokens | length of extras | extras): `extras` is what else
  /// the block's content depends on (nothing for plain text).
  BlockId child(const BlockId& parent, std::span<const int32_t> tokens,
                std::string_view extras = {});

 private:
  Sha256 hash_;
};

}  // namespace outrider
