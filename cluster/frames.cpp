#include "cluster/frames.hpp"

namespace outrider::cluster {
namespace {

enum Operation : uint8_t {
  server_handshake = 0,
  client_handshake = 1,
  direct_message = 2,
  routed_message = 3,
  monitor_message = 4,
  down_message = 5,
  heartbeat = 6,
};
/// Node ids, errors: what is no message is short.
constexpr size_t k_other_payload_max = size_t{4} << 10;
/// Before the message of a routed one: whose and for whom.
constexpr size_t k_node_id_bytes = 32;
/// Bits 60 and 61 of a message's id: 2 and 3 are of streams, which we have none of.
constexpr uint8_t k_category_mask = 0x30;
constexpr uint8_t k_category_normal = 0x10;

/// An error says why in a message of its own.
constexpr size_t k_error_payload_max = size_t{1} << 10;
constexpr std::string_view k_types_begin = "@<>";

/// Of CAF's own: names, texts and actors, with which nodes get to know each other, and errors.
bool is_of_caf(std::string_view type) {
  return type == "@atom" || type == "@str" || type == "@strong_actor_ptr" || type == "@error";
}

/// "@<>+TYPE+TYPE…": as CAF names what a message holds. The first unknown type goes to `why`.
bool are_known(std::string_view types, std::string& why) {
  constexpr std::string_view k_own = "outrider::schema::";
  if (!types.starts_with(k_types_begin)) {
    why = "a message without types";
    return false;
  }
  types.remove_prefix(k_types_begin.size());
  while (!types.empty()) {
    if (types.front() == '+') types.remove_prefix(1);
    const std::string_view type = types.substr(0, types.find('+'));
    if (!type.starts_with(k_own) && !is_of_caf(type)) {
      why = "a message of unknown type";
      return false;
    }
    types.remove_prefix(type.size());
  }
  return true;
}

/// Whether all messages within an error's are known, too.
bool is_good_error(std::string_view contents, std::string& why) {
  if (contents.size() > k_error_payload_max) {
    why = "an error of " + std::to_string(contents.size()) + " bytes";
    return false;
  }
  for (size_t at = contents.find(k_types_begin); at != contents.npos;
       at = contents.find(k_types_begin, at + 1)) {
    const size_t length = at == 0 ? 0 : static_cast<uint8_t>(contents[at - 1]);
    if (!are_known(contents.substr(at, length), why)) return false;
  }
  return true;
}

/// No stages, then the names of the types with their length before them, seven bits a byte.
bool is_known_message(std::string_view payload, std::string& why) {
  constexpr std::string_view k_stages_and_zero("\0\0\0", 3);
  why = "a message that is cut, or has stages";
  if (!payload.starts_with(k_stages_and_zero)) return false;
  payload.remove_prefix(k_stages_and_zero.size());
  size_t length = 0;
  for (unsigned shift = 0; shift <= 14; shift += 7) {
    if (payload.empty()) return false;
    const auto byte = static_cast<uint8_t>(payload.front());
    payload.remove_prefix(1);
    length |= size_t{byte & 0x7fU} << shift;
    if ((byte & 0x80U) != 0) continue;
    if (length > payload.size()) return false;
    const std::string_view types = payload.substr(0, length);
    const bool is_error = types.find("+@error") != types.npos;
    return are_known(types, why) && (!is_error || is_good_error(payload.substr(length), why));
  }
  return false;
}

}  // namespace

bool FrameReader::take(std::span<const uint8_t> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  while (buffer_.size() - good_ >= k_head_bytes) {
    const uint8_t* head = &buffer_[good_];
    const uint32_t payload = uint32_t{head[4]} << 24 | uint32_t{head[5]} << 16 |
                             uint32_t{head[6]} << 8 | uint32_t{head[7]};
    if (payload > limits::cluster_frame_bytes_max) {
      why_ = std::to_string(payload) + " bytes";
      return false;
    }
    const size_t size = k_head_bytes + payload;
    if (buffer_.size() - good_ < size) break;
    if (!is_good({head, size})) return false;
    good_ += size;
  }
  return true;
}

void FrameReader::passed() {
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(good_));
  good_ = 0;
}

bool FrameReader::is_good(std::span<const uint8_t> frame) {
  const std::string_view payload(reinterpret_cast<const char*>(frame.data()) + k_head_bytes,
                                 frame.size() - k_head_bytes);
  const uint8_t operation = frame[0];
  why_ = "operation " + std::to_string(operation) + " with " + std::to_string(payload.size()) +
         " bytes, out of turn";
  if (operation == (server_ ? server_handshake : client_handshake)) {
    const bool is_again = server_ && greeted_;
    greeted_ = true;
    return !payload.empty() && payload.size() <= k_other_payload_max && !is_again;
  }
  if (operation == heartbeat) return payload.empty();
  if (!greeted_) return false;
  switch (operation) {
    case direct_message:
    case routed_message: {
      if ((frame[8] & k_category_mask) > k_category_normal) return false;
      const size_t ids = operation == routed_message ? 2 * k_node_id_bytes : 0;
      return payload.size() > ids && is_known_message(payload.substr(ids), why_);
    }
    case monitor_message:
    case down_message:
      return payload.size() <= k_other_payload_max;
    default:
      return false;
  }
}

}  // namespace outrider::cluster
