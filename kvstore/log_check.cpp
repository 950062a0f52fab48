#include "kvstore/log_check.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace outrider::kvstore {
namespace {

namespace fs = std::filesystem;

constexpr size_t k_block_bytes = size_t{32} << 10;
constexpr size_t k_type_at = 6;
constexpr size_t k_head_bytes = 7;
constexpr size_t k_write_head_bytes = 12;
constexpr uint64_t k_sequence_max = (uint64_t{1} << 56) - 1;
enum RecordType : uint8_t {
  k_full = 1,
  k_first = 2,
  k_middle = 3,
  k_last = 4,
  k_again_full = 5,
  k_again_last = 8
};

constexpr const char* k_foreign = "has a record of a kind that is never written";
constexpr const char* k_unreached = "has a write that no counter reaches";
constexpr const char* k_large = "is larger than any that is written";
constexpr const char* k_repeated = "has what was written before";

constexpr std::array<uint32_t, 256> crc32c_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0x82f63b78U : 0U);
    table[byte] = sum;
  }
  return table;
}

/// Turned and shifted, as RocksDB keeps it.
uint32_t check_sum(std::string_view bytes) {
  static constexpr auto k_table = crc32c_table();
  uint32_t sum = ~0U;
  for (const char byte : bytes)
    sum = (sum >> 8) ^ k_table[(sum ^ static_cast<uint8_t>(byte)) & 255];
  return std::rotr(~sum, 15) + 0xa282ead8U;
}

template <typename T>
T little_endian(std::string_view bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Looks at logs, one after the other.
class LogReader {
 public:
  std::optional<LogDamage> read(const fs::path& log) {
    std::ifstream file(log, std::ios::binary);
    std::vector<char> block(k_block_bytes);
    end_ = 0;
    is_behind_ = false;
    LogDamage damage{log.filename().string(), k_repeated, std::nullopt};
    for (uint64_t begin = 0; file && !damage.cut_at; begin += k_block_bytes) {
      if (begin == k_log_bytes_max && file.peek() != std::ifstream::traits_type::eof()) {
        damage.what = k_large;
        damage.cut_at = begin;
        break;
      }
      file.read(block.data(), static_cast<std::streamsize>(block.size()));
      const auto at = read_block({block.data(), static_cast<size_t>(file.gcount())}, damage);
      if (at) damage.cut_at = begin + *at;
    }
    end_of_all_ = std::max(end_of_all_, end_);
    if (!damage.cut_at && !is_behind_) return std::nullopt;
    return damage;
  }

 private:
  std::unordered_set<uint64_t> sequences_;
  uint64_t end_of_all_ = 0;  // behind the newest write of the logs before
  uint64_t end_ = 0;         // and of this one
  bool is_behind_ = false;   // it has older ones than those

  /// Where it must be cut.
  std::optional<size_t> read_block(std::string_view block, LogDamage& damage) {
    for (size_t at = 0; at + k_head_bytes <= block.size();) {
      const auto type = static_cast<uint8_t>(block[at + k_type_at]);
      const size_t size = little_endian<uint16_t>(block, at + 4);
      if (type >= k_again_full && type <= k_again_last) {
        damage.what = k_foreign;
        return at;
      }
      if (at + k_head_bytes + size > block.size()) break;
      const std::string_view summed = block.substr(at + k_type_at, size + 1);
      if (little_endian<uint32_t>(block, at) != check_sum(summed)) break;
      const bool begins = type == k_full || type == k_first;
      if (begins && size >= k_write_head_bytes && !add_write(summed.substr(1), damage)) return at;
      at += k_head_bytes + size;
    }
    return std::nullopt;
  }

  bool add_write(std::string_view write, LogDamage& damage) {
    const auto sequence = little_endian<uint64_t>(write, 0);
    const auto count = little_endian<uint32_t>(write, sizeof sequence);
    if (sequence > k_sequence_max - count) {
      damage.what = k_unreached;
      return false;
    }
    if (count == 0) return true;
    if (sequence < end_ || !sequences_.insert(sequence).second) return false;
    end_ = sequence + count;
    is_behind_ = is_behind_ || sequence < end_of_all_;
    return true;
  }
};

/// Whether what can be read of it is whole records from its begin to its end.
bool is_whole(const fs::path& list) {
  std::ifstream file(list, std::ios::binary);
  std::vector<char> bytes(k_block_bytes);
  bool is_within = false;  // between the first part of a record and its last
  while (file) {
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (file.bad()) return true;  // a failing disk, of which RocksDB's opening tells
    const std::string_view block{bytes.data(), static_cast<size_t>(file.gcount())};
    size_t at = 0;
    while (at + k_head_bytes <= block.size()) {
      const auto type = static_cast<uint8_t>(block[at + k_type_at]);
      const size_t size = little_endian<uint16_t>(block, at + 4);
      if (type < k_full || type > k_last || at + k_head_bytes + size > block.size()) return false;
      const std::string_view summed = block.substr(at + k_type_at, size + 1);
      if (little_endian<uint32_t>(block, at) != check_sum(summed)) return false;
      const bool begins = type == k_full || type == k_first;
      if (begins == is_within) return false;
      is_within = type == k_first || type == k_middle;
      at += k_head_bytes + size;
    }
    // Only a whole block has a rest that no record fits into.
    if (at != block.size() && block.size() != k_block_bytes) return false;
  }
  return !is_within;
}

}  // namespace

std::string damage_of_list(const std::string& directory) {
  std::string name;
  std::getline(std::ifstream(directory + "/CURRENT"), name);
  const fs::path list = fs::path(directory) / name;
  std::error_code gone;
  if (!name.starts_with("MANIFEST-") || !fs::is_regular_file(list, gone)) return {};
  for (uint64_t size = fs::file_size(list, gone); !gone && !is_whole(list);) {
    const uint64_t before = std::exchange(size, fs::file_size(list, gone));
    if (before == size) return "the list of its tables, " + name + ", is damaged or cut short";
  }  // else somebody was writing to it
  return {};
}

std::vector<LogDamage> damaged_logs(const std::string& directory) {
  std::multimap<uint64_t, fs::path> logs;
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code gone;
    if (at->path().extension() != ".log" || !fs::is_regular_file(at->symlink_status(gone)))
      continue;
    const std::string stem = at->path().stem().string();
    uint64_t number = 0;
    const auto [end, wrong] = std::from_chars(stem.data(), stem.data() + stem.size(), number);
    if (wrong == std::errc() && end == stem.data() + stem.size()) logs.emplace(number, at->path());
  }
  LogReader reader;
  std::vector<LogDamage> out;
  for (const auto& [number, log] : logs) {
    if (auto damage = reader.read(log)) out.push_back(std::move(*damage));
  }
  return out;
}

}  // namespace outrider::kvstore
