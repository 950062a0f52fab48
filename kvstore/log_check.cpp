#include "kvstore/log_check.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace outrider::kvstore {
namespace {

namespace fs = std::filesystem;

constexpr size_t k_block_bytes = size_t{32} << 10;
constexpr size_t k_head_bytes = 7;
constexpr size_t k_log_number_bytes = 4;
constexpr size_t k_write_head_bytes = 12;
enum RecordType : uint8_t { k_full = 1, k_first = 2, k_again_full = 5, k_again_first = 6 };

/// The offset of the first write whose sequence number is known already.
std::optional<size_t> add_writes(std::string_view block, std::unordered_set<uint64_t>& sequences) {
  for (size_t at = 0; at + k_head_bytes <= block.size();) {
    const auto type = static_cast<uint8_t>(block[at + 6]);
    const size_t head = type >= k_again_full ? k_head_bytes + k_log_number_bytes : k_head_bytes;
    uint16_t size = 0;
    std::memcpy(&size, block.data() + at + 4, sizeof size);
    if (type == 0 || at + head + size > block.size()) break;  // padding, or no record
    const bool begins =
        type == k_full || type == k_first || type == k_again_full || type == k_again_first;
    if (begins && size >= k_write_head_bytes) {
      uint64_t sequence = 0;
      uint32_t count = 0;
      std::memcpy(&sequence, block.data() + at + head, sizeof sequence);
      std::memcpy(&count, block.data() + at + head + sizeof sequence, sizeof count);
      if (count != 0 && !sequences.insert(sequence).second) return at;
    }
    at += head + size;
  }
  return std::nullopt;
}

std::optional<uint64_t> add_log(const fs::path& log, std::unordered_set<uint64_t>& sequences) {
  std::ifstream file(log, std::ios::binary);
  std::vector<char> block(k_block_bytes);
  for (uint64_t begin = 0; file; begin += k_block_bytes) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    const auto size = static_cast<size_t>(file.gcount());
    if (const auto at = add_writes({block.data(), size}, sequences)) return begin + *at;
  }
  return std::nullopt;
}

}  // namespace

std::vector<RepeatedWrite> repeated_writes(const std::string& directory) {
  std::vector<fs::path> logs;
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code gone;
    if (at->path().extension() == ".log" && at->is_regular_file(gone)) logs.push_back(at->path());
  }
  std::sort(logs.begin(), logs.end());  // their numbers have six digits
  std::unordered_set<uint64_t> sequences;
  std::vector<RepeatedWrite> out;
  for (const fs::path& log : logs) {
    const auto offset = add_log(log, sequences);
    if (offset) out.push_back({log.filename().string(), *offset});
  }
  return out;
}

}  // namespace outrider::kvstore
