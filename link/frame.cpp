#include "link/frame.hpp"

#include <cstring>
#include <type_traits>

#include "base/bytes.hpp"  // holds the machine to little-endian
#include "base/check.hpp"
#include "base/hash.hpp"
#include "base/limits.hpp"

namespace outrider::link {
namespace {

constexpr std::array<char, 4> k_magic = {'O', 'R', 'L', 'K'};
constexpr size_t k_checked_bytes = k_header_bytes - sizeof(uint64_t);

/// A header's fields as they lie; without gaps.
struct Fields {
  std::array<char, 4> magic = k_magic;
  uint8_t version = k_frame_version;
  uint8_t kind = 0;
  uint8_t stream = 0;
  uint8_t zero = 0;
  uint32_t payload_bytes = 0;
  uint32_t zeros = 0;
  uint64_t sequence = 0;
  uint64_t value = 0;
  uint64_t message_bytes = 0;
  std::array<uint64_t, 2> payload_check{};
  uint64_t check = 0;
};
static_assert(sizeof(Fields) == k_header_bytes);
static_assert(std::is_trivially_copyable_v<Fields>);

/// Fields that a kind does not use are zero: a frame has one form only.
bool is_plain(const Fields& f) {
  switch (FrameKind{f.kind}) {
    case FrameKind::hello:
      return f.payload_bytes == 0 && f.message_bytes == 0;
    case FrameKind::data:
      return true;
    case FrameKind::credit:
      return f.payload_bytes == 0 && f.message_bytes == 0;
    case FrameKind::ping:
      return f.payload_bytes == 0 && f.message_bytes == 0 && f.stream == 0 && f.value == 0;
  }
  return false;
}

}  // namespace

HeaderBytes encode(const Frame& frame) {
  Fields f;
  f.kind = static_cast<uint8_t>(frame.kind);
  f.stream = frame.stream;
  f.payload_bytes = static_cast<uint32_t>(frame.payload.size());
  f.sequence = frame.sequence;
  f.value = frame.value;
  f.message_bytes = frame.message_bytes;
  f.payload_check = hash128(frame.payload);
  HeaderBytes bytes{};
  std::memcpy(bytes.data(), &f, sizeof(f));
  f.check = hash64(std::span(bytes).first<k_checked_bytes>());
  std::memcpy(bytes.data() + k_checked_bytes, &f.check, sizeof(f.check));
  return bytes;
}

LinkEnd decode(std::span<const std::byte, k_header_bytes> bytes, Header& header) {
  Fields f;
  std::memcpy(&f, bytes.data(), sizeof(f));
  if (f.magic != k_magic) return LinkEnd::format;
  // Before the check sum, which may be elsewhere in another version.
  if (f.version != k_frame_version) return LinkEnd::version;
  if (hash64(bytes.first<k_checked_bytes>()) != f.check) return LinkEnd::checksum;
  if (f.zero != 0 || f.zeros != 0) return LinkEnd::format;
  if (f.payload_bytes > limits::link_frame_bytes_max) return LinkEnd::oversized;
  if (f.message_bytes > limits::link_message_bytes_max) return LinkEnd::oversized;
  if (!is_plain(f)) return LinkEnd::format;
  header.frame = {FrameKind{f.kind}, f.stream, f.sequence, f.value, f.message_bytes, {}};
  header.payload_bytes = f.payload_bytes;
  header.payload_check = f.payload_check;
  return LinkEnd::none;
}

FrameReader::FrameReader() : buffer_(k_header_bytes + limits::link_frame_bytes_max) {}

std::span<std::byte> FrameReader::room() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, size_ - begin_);
    size_ -= begin_;
    begin_ = 0;
  }
  return std::span(buffer_).subspan(size_);
}

void FrameReader::filled(size_t bytes) {
  OUTRIDER_CHECK(bytes <= buffer_.size() - size_, bytes, size_);
  size_ += bytes;
}

std::optional<Frame> FrameReader::next() {
  if (end_ != LinkEnd::none || size_ - begin_ < k_header_bytes) return std::nullopt;
  const auto bytes = std::span<const std::byte>(buffer_).subspan(begin_, size_ - begin_);
  Header header;
  end_ = decode(bytes.first<k_header_bytes>(), header);
  if (end_ == LinkEnd::none && header.frame.sequence != sequence_) end_ = LinkEnd::sequence;
  if (end_ != LinkEnd::none || bytes.size() - k_header_bytes < header.payload_bytes) {
    return std::nullopt;
  }
  header.frame.payload = bytes.subspan(k_header_bytes, header.payload_bytes);
  if (hash128(header.frame.payload) != header.payload_check) {
    end_ = LinkEnd::checksum;
    return std::nullopt;
  }
  begin_ += k_header_bytes + header.payload_bytes;
  ++sequence_;
  return header.frame;
}

}  // namespace outrider::link
