#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace outrider {

using Digest256 = std::array<uint8_t, 32>;

/// SHA-256, incremental. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  Sha256& update(std::span<const std::byte> bytes);
  Sha256& update(std::string_view text);
  /// Appends the value's eight little-endian bytes.
  Sha256& update(uint64_t value);
  /// The digest of everything so far. Afterwards only `restart` may be called.
  Digest256 finish();
  /// Forgets everything so far. Allocates nothing.
  void restart();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Digest256 sha256(std::string_view text);
Digest256 hmac_sha256(std::string_view key, std::string_view text);

/// Lower-case hexadecimal.
std::string to_hex(std::span<const uint8_t> bytes);

/// XXH3, 64 bits. For tables and check sums, never for identity.
uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed = 0);
uint64_t hash64(std::string_view text, uint64_t seed = 0);

/// XXH3, 128 bits, low half first: a check sum for data of any size.
std::array<uint64_t, 2> hash128(std::span<const std::byte> bytes);

/// True if both are equal, in the same time whatever they are. For secrets: compare their digests.
bool constant_time_equal(const Digest256& a, const Digest256& b);

}  // namespace outrider
