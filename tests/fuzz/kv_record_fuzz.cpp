// Stored KV records and index rows: as they come, and with their check sums made right, so that
// what lies behind those is reached.

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "kvstore/index_row.hpp"
#include "kvstore/record.hpp"

namespace {

using namespace outrider;

uint64_t sum = 0;  // keeps the reads from being optimised away

constexpr size_t k_head_bytes = 120, k_entry_bytes = 32, k_check_bytes = 16;

void read(std::span<const std::byte> bytes) {
  const auto record = kvstore::decode(bytes);
  if (!record) {
    if (record.error().code != ErrorCode::corrupt || record.error().message.empty()) std::abort();
    return;
  }
  kvstore::Block block{record->ns, record->id, record->parent, record->depth, record->tokens, {}};
  for (const kvstore::TensorView& tensor : record->tensors) {
    for (const std::byte b : tensor.bytes) sum += std::to_integer<uint8_t>(b);
    block.tensors.push_back(
        {std::string(tensor.name), tensor.layers, SharedBytes(nullptr, tensor.bytes)});
  }
  const auto again = kvstore::encode(block);
  if (!again || !std::equal(again->begin(), again->end(), bytes.begin(), bytes.end())) std::abort();
}

/// The input with its size and both check sums put right, where it is long enough for them.
std::vector<std::byte> sealed(std::span<const std::byte> bytes) {
  std::vector<std::byte> out(bytes.begin(), bytes.end());
  if (out.size() < k_head_bytes + sizeof(uint64_t) + k_check_bytes) return out;
  uint16_t tensors = 0;
  uint32_t tokens = 0;
  std::memcpy(&tensors, out.data() + 6, sizeof(tensors));
  std::memcpy(&tokens, out.data() + 8, sizeof(tokens));
  const uint64_t size = out.size();
  std::memcpy(out.data() + 16, &size, sizeof(size));
  const uint64_t header = k_head_bytes + uint64_t{tensors} * k_entry_bytes + uint64_t{tokens} * 4;
  if (header + sizeof(uint64_t) + k_check_bytes > size) return out;
  const uint64_t header_check = hash64(std::span(out).first(header));
  std::memcpy(out.data() + header, &header_check, sizeof(header_check));
  const auto check = hash128(std::span(out).first(out.size() - k_check_bytes));
  std::memcpy(out.data() + out.size() - k_check_bytes, check.data(), k_check_bytes);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  read(bytes);
  read(sealed(bytes));
  BlockId id{};
  if (size > id.size()) {
    std::memcpy(id.data(), data, id.size());
    const auto row = kvstore::decode_row(id, bytes.subspan(id.size()));
    if (row && kvstore::decode_row(id, kvstore::encode_row(id, *row)) != row) std::abort();
  }
  return 0;
}
