#include "cluster/handshake.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/system.hpp"

namespace outrider::cluster {
namespace {

constexpr std::string_view k_magic = "OUTRIDER";
static_assert(k_magic.size() == k_magic_bytes);
constexpr size_t k_version_at = k_magic_bytes;
constexpr size_t k_verdict_at = 10;
constexpr size_t k_purpose_at = 11;
constexpr size_t k_nonce_at = 12;
static_assert(k_nonce_at + sizeof(Nonce) == k_opening_bytes);

Digest256 proof(const std::string& secret, std::string_view who, const Exchange& exchange) {
  // The secret keys the names of blocks, too: no digest may serve as the other.
  const Digest256 key = hmac_sha256(secret, "outrider cluster handshake");
  std::string text(who);
  text += static_cast<char>(exchange.purpose);
  for (const Nonce& nonce : {exchange.member, exchange.server}) {
    text.append(reinterpret_cast<const char*>(nonce.data()), nonce.size());
  }
  return hmac_sha256({reinterpret_cast<const char*>(key.data()), key.size()}, text);
}

template <class Bytes>
Bytes random_bytes() {
  Bytes bytes;
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t bits = random_bits();
    std::memcpy(&bytes[at], &bits, sizeof bits);
  }
  return bytes;
}

}  // namespace

const char* to_string(Refusal refusal) {
  constexpr std::array<const char*, k_refusals> k_names = {"none", "protocol", "version", "secret",
                                                           "tls",  "timeout",  "full",    "frame"};
  return k_names[static_cast<size_t>(refusal)];
}

Nonce random_nonce() {
  return random_bytes<Nonce>();
}

LineToken random_line_token() {
  return random_bytes<LineToken>();
}

OpeningBytes encode(const Opening& opening) {
  OpeningBytes bytes{};
  std::copy(k_magic.begin(), k_magic.end(), bytes.begin());
  bytes[k_version_at] = static_cast<uint8_t>(opening.version & 0xff);
  bytes[k_version_at + 1] = static_cast<uint8_t>(opening.version >> 8);
  bytes[k_verdict_at] = static_cast<uint8_t>(opening.verdict);
  bytes[k_purpose_at] = static_cast<uint8_t>(opening.purpose);
  std::copy(opening.nonce.begin(), opening.nonce.end(), &bytes[k_nonce_at]);
  return bytes;
}

bool is_magic(std::span<const uint8_t, k_magic_bytes> bytes) {
  return std::ranges::equal(bytes, k_magic, {},
                            [](uint8_t byte) { return static_cast<char>(byte); });
}

std::optional<Opening> decode_opening(std::span<const uint8_t, k_opening_bytes> bytes) {
  if (!is_magic(bytes.first<k_magic_bytes>())) return std::nullopt;
  if (bytes[k_verdict_at] >= k_refusals || bytes[k_purpose_at] >= k_purposes) return std::nullopt;
  Opening opening;
  opening.version = static_cast<uint16_t>(bytes[k_version_at] | bytes[k_version_at + 1] << 8);
  opening.verdict = static_cast<Refusal>(bytes[k_verdict_at]);
  opening.purpose = static_cast<Purpose>(bytes[k_purpose_at]);
  std::copy(&bytes[k_nonce_at], bytes.data() + bytes.size(), opening.nonce.begin());
  return opening;
}

Digest256 Exchange::member_proof(const std::string& secret) const {
  return proof(secret, "member", *this);
}

Digest256 Exchange::server_proof(const std::string& secret) const {
  return proof(secret, "server", *this);
}

}  // namespace outrider::cluster
