#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/hash.hpp"

/// What two processes of a cluster say before their actors talk. Both speak once before either has
/// to prove anything, and the one that connects proves itself first:
///
///     member              server
///       ── Opening ─────────>      protocol version, what the connection is for, a nonce
///       <───────── Opening ──      its own; a refusal ends here, in words
///       ── proof ───────────>      HMAC-SHA-256 of both nonces, keyed by the cluster's secret
///       <─ verdict, proof ───      a refusal, or the server's own proof
///
/// Nonces are fresh on both sides: what was recorded proves nothing later. With no secret the key
/// is empty, and only equal (no) secrets agree. Whether the bytes are encrypted is TLS's business,
/// around this. Who asks for a line says which behind this, in a LineToken.
namespace outrider::cluster {

/// Raised with every change of `schema/` that an older process would read wrongly.
inline constexpr uint16_t k_wire_version = 5;

/// What a connection is for.
enum class Purpose : uint8_t {
  actors = 0,  ///< Messages between actors.
  line,        ///< Bulk: the server joins it with another one that names the same line.
};
inline constexpr size_t k_purposes = 2;

/// Why a connection was not let in, or not kept.
enum class Refusal : uint8_t {
  none = 0,
  protocol,  ///< It does not speak this protocol.
  version,   ///< It speaks another version of it.
  secret,    ///< Its secret is another.
  tls,       ///< No TLS, or not with a certificate of this cluster.
  timeout,   ///< It did not finish in time.
  full,      ///< As many are connected, or are trying to, as there may be.
  frame,     ///< Once in, it sent what no member sends.
};
inline constexpr size_t k_refusals = 8;
const char* to_string(Refusal refusal);

using Nonce = std::array<uint8_t, 32>;
Nonce random_nonce();

struct Opening {
  uint16_t version = k_wire_version;
  Refusal verdict = Refusal::none;    ///< Of the server; members have none.
  Purpose purpose = Purpose::actors;  ///< Of the member.
  Nonce nonce{};
};

inline constexpr size_t k_opening_bytes = 44;
using OpeningBytes = std::array<uint8_t, k_opening_bytes>;
OpeningBytes encode(const Opening& opening);
/// Openings begin with these.
inline constexpr size_t k_magic_bytes = 8;
bool is_magic(std::span<const uint8_t, k_magic_bytes> bytes);
/// Nothing: these are not the first bytes of this protocol.
std::optional<Opening> decode_opening(std::span<const uint8_t, k_opening_bytes> bytes);

/// Two ends that name the same one are joined. Whoever is to have the other end is told it.
using LineToken = std::array<uint8_t, 16>;
LineToken random_line_token();

inline constexpr size_t k_verdict_bytes = 1 + std::tuple_size_v<Digest256>;

/// What both sides know after the openings.
struct Exchange {
  Purpose purpose = Purpose::actors;
  Nonce member{};
  Nonce server{};

  Digest256 member_proof(const std::string& secret) const;
  Digest256 server_proof(const std::string& secret) const;
};

}  // namespace outrider::cluster
