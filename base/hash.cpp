#include "base/hash.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <xxhash.h>

#include <utility>

#include "base/check.hpp"

namespace outrider {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  OUTRIDER_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

Sha256& Sha256::update(std::span<const std::byte> bytes) {
  OUTRIDER_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
  return *this;
}

Sha256& Sha256::update(std::string_view text) {
  return update(std::as_bytes(std::span(text.data(), text.size())));
}

Sha256& Sha256::update(uint64_t value) {
  return update(std::as_bytes(std::span(&value, 1)));
}

Digest256 Sha256::finish() {
  Digest256 digest{};
  unsigned length = 0;
  OUTRIDER_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &length) == 1);
  OUTRIDER_CHECK(length == digest.size(), length);
  return digest;
}

void Sha256::restart() {
  // No type: the one that the context has, without fetching it again.
  OUTRIDER_CHECK(EVP_DigestInit_ex(state_->context, nullptr, nullptr) == 1);
}

Digest256 sha256(std::string_view text) {
  return Sha256().update(text).finish();
}

Digest256 hmac_sha256(std::string_view key, std::string_view text) {
  Digest256 digest{};
  unsigned length = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  OUTRIDER_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes, text.size(),
                      digest.data(), &length) != nullptr);
  OUTRIDER_CHECK(length == digest.size(), length);
  return digest;
}

std::string to_hex(std::span<const uint8_t> bytes) {
  static constexpr char k_digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes) {
    text.push_back(k_digits[byte >> 4]);
    text.push_back(k_digits[byte & 15]);
  }
  return text;
}

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t hash64(std::string_view text, uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

std::array<uint64_t, 2> hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

bool constant_time_equal(const Digest256& a, const Digest256& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace outrider
